"""Whether a file about to be published is what its name says: no link, no pickle, only finite weights."""

import json
import pickletools
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

TEXT = (".jinja", ".json", ".md", ".txt", ".yaml", ".yml")
ZIP = b"PK\x03\x04"  # as torch.save writes; pickles are inside
PICKLE = re.compile(rb"\x80[\x02-\x05]")  # from protocol 2 on
PNG = b"\x89PNG\r\n\x1a\n"


def read_checked(path: Path, folder: Path) -> tuple[str, Any]:
    """Read a file that is to be published, and refuse what should not be published under its name.

    Args:
        path: A file.
        folder: What is published; the file is in it.

    Returns:
        Its text, and its value if it is JSON, else None. Of safetensors files: metadata and names of tensors.

    Raises:
        ValueError: If the file or a directory on the way to it is a link, which would publish something
            from elsewhere; if it holds a pickle or a ZIP archive, which can run code when they are loaded,
            or is no text, JSON or PNG where its name says so; if a tensor in it is not finite.
    """
    refuse_link(path, folder)
    with path.open("rb") as file:  # weights are large, and read tensor by tensor below
        content = file.read(1024 if path.suffix == ".safetensors" else -1)
    if kind := _runs_code(content):
        raise ValueError(
            f"{path} holds {kind}, which can run code when it is loaded. Remove it, save the adapter and its "
            "processor again, and push again. Nothing was uploaded."
        )
    if path.suffix == ".safetensors":
        header = _checked_header(path)
        return json.dumps(header, ensure_ascii=False), header
    if path.suffix == ".png" and not content.startswith(PNG):
        raise ValueError(f"{path} is no PNG. Remove it and push again. Nothing was uploaded.")
    try:
        text = content.decode("utf-8-sig", errors="strict" if path.suffix in TEXT else "replace")
        return text, json.loads(text) if path.suffix == ".json" else None
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "text"
        raise ValueError(
            f"{path} is no {kind} in UTF-8 ({error}). Save it again and push again. Nothing was uploaded."
        ) from error


def refuse_link(path: Path, folder: Path) -> None:
    """Raise if a file, or a directory between it and the folder, is a link.

    Args:
        path: A file in the folder.
        folder: What is published; it may be a link itself.

    Raises:
        ValueError: If there is a link: what it points to would be published, or written to.
    """
    for step in (path, *path.parents):
        if step == folder or step == step.parent:
            break
        if step.is_symlink():
            raise ValueError(
                f"{step} is a link to {step.readlink()}, and what it points to would be published. Expected "
                f"a file of its own: `cp -rL {folder} <new folder>` copies what links point to. Nothing was "
                "uploaded."
            )


def _runs_code(content: bytes) -> str | None:
    if content.startswith(ZIP):
        return "a ZIP archive, as torch.save writes"
    if PICKLE.match(content):
        return "a pickle"
    try:  # the protocols 0 and 1 have no mark; words are none of their instructions
        return "a pickle" if sum(1 for _ in pickletools.genops(content)) > 2 else None
    except ValueError:
        return None


def _checked_header(path: Path) -> dict[str, Any]:
    """Metadata and names of tensors of a safetensors file, all of whose values are finite."""
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            for name in names:
                tensor = file.get_tensor(name)
                if tensor.is_floating_point() and not torch.isfinite(tensor.float()).all():
                    raise ValueError(
                        f"{path}: the tensor {name!r} has values that are not finite numbers, as after a "
                        "training that diverged. Push an earlier checkpoint, or train with a lower rate. "
                        "Nothing was uploaded."
                    )
            return {"metadata": file.metadata(), "tensors": names}
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors ({error}). Nothing was uploaded.") from error
