"""Datasets of pictures: whatever is measured has photographs and random numbers that no training had."""

from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

from .logos import BRANDS, logo
from .pictures import picture

QUESTION = "Which brand is this?"
# Photographs of scikit-image; no split has one of another.
PHOTOGRAPHS = {
    "training": (
        "astronaut.png",
        "brick.png",
        "clock_motion.png",
        "coffee.png",
        "coins.png",
        "grass.png",
        "hubble_deep_field.jpg",
        "ihc.png",
        "moon.png",
        "page.png",
        "rocket.jpg",
    ),
    "selection": ("camera.png", "retina.jpg"),
    "held_out": ("chelsea.png", "gravel.png", "motorcycle_left.png"),
}
# Which stream of random numbers draws what; streams of one seed are independent.
STREAMS = ("other", "labelled", "graded", "selection", "held_out")


def photographs(stream: str) -> tuple[str, ...]:
    """Those that a stream's pictures are drawn on; "labelled" and "graded" have the same."""
    return PHOTOGRAPHS[stream if stream in PHOTOGRAPHS else "training"]


def render(
    folder: Path, titles: Sequence[str], number: int, backgrounds: tuple[str, ...], stream: str, seed: int
) -> tuple[list[Image.Image], list[str]]:
    """Pictures and the titles of their logos, each title as often as the others, in random order.

    Args:
        folder: The unpacked package of logos.
        titles: Of the logos.
        number: Pictures in all.
        backgrounds: Photographs to draw on.
        stream: One of `STREAMS`.
        seed: Of all streams.
    """
    rng = np.random.default_rng([seed, STREAMS.index(stream)])
    shown = [titles[index % len(titles)] for index in rng.permutation(number)]
    return [picture(logo(folder, title), backgrounds, rng) for title in shown], shown


def brand_rows(folder: Path, number: int, stream: str, seed: int) -> datasets.Dataset:
    """Rows of the task: `prompt` (messages), `image` (PIL), `answer` (a brand).

    Args:
        folder: The unpacked package of logos.
        number: Rows.
        stream: "labelled" and "graded" have the photographs of training, the others their own.
        seed: Of all streams.
    """
    images, brands = render(folder, BRANDS, number, photographs(stream), stream, seed)
    columns = {
        "prompt": [[{"role": "user", "content": QUESTION}]] * number,
        "image": images,
        "answer": brands,
    }
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def with_completions(rows: datasets.Dataset) -> datasets.Dataset:
    """The rows with `completion`: their answer, as supervised training reads it."""
    return rows.add_column(
        "completion", [[{"role": "assistant", "content": brand}] for brand in rows["answer"]]
    )
