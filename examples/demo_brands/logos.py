"""Logos of simple-icons as masks, and which of them stand for what."""

import functools
import io
import json
import re
from pathlib import Path

import numpy as np
import resvg_py
from PIL import Image

# The brands of the task, as simple-icons titles them. All of them, and only they, are the choices.
BRANDS = (
    "Nike",
    "Adidas",
    "Puma",
    "Apple",
    "Tesla",
    "Toyota",
    "Honda",
    "Audi",
    "BMW",
    "Volkswagen",
    "Shell",
    "Starbucks",
    "Target",
    "Spotify",
    "Netflix",
    "WhatsApp",
)
MASK_SIDE = 192  # pixels


@functools.cache
def _slugs(folder: Path) -> dict[str, str]:
    """Title to the name of its file, of all icons."""
    entries = json.loads((folder / "package" / "data" / "simple-icons.json").read_text())
    return {entry["title"]: entry["slug"] for entry in entries}


@functools.cache
def logo(folder: Path, title: str) -> Image.Image:
    """The mask ("L", `MASK_SIDE` x `MASK_SIDE`) of an icon.

    Args:
        folder: The unpacked package.
        title: As simple-icons has it; "adidas" and "Adidas" are the same.

    Raises:
        KeyError: If there is no such icon.
    """
    by_title = {name.casefold(): slug for name, slug in _slugs(folder).items()}
    drawing = (folder / "package" / "icons" / f"{by_title[title.casefold()]}.svg").read_text()
    png = resvg_py.svg_to_bytes(svg_string=drawing, width=MASK_SIDE, height=MASK_SIDE)
    return Image.open(io.BytesIO(bytes(png))).convert("RGBA").getchannel("A")


def other_titles(folder: Path, number: int, seed: int) -> list[str]:
    """Titles of icons that are none of `BRANDS`, and share no word with one ("Apple Music").

    Args:
        folder: The unpacked package.
        number: How many.
        seed: Decides which.

    Returns:
        Titles of letters alone, of 3 to 12 characters.
    """
    taken = {brand.casefold() for brand in BRANDS}
    free = [
        title
        for title in _slugs(folder)
        if re.fullmatch(r"[A-Za-z]{3,12}", title) and not any(brand in title.casefold() for brand in taken)
    ]
    chosen = np.random.default_rng(seed).permutation(len(free))[:number]
    return [free[index] for index in chosen]
