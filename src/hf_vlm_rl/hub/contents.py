"""Whether a file about to be published is what its name says: no link, no pickle, only finite weights."""

import json
import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

TEXT = (".jinja", ".json", ".md", ".txt", ".yaml", ".yml")
ZIP = b"PK\x03\x04"  # as torch.save writes; pickles are inside
PICKLE = re.compile(rb"\x80[\x02-\x05]")  # from protocol 2 on
PNG, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
RANKS = re.compile(rb"(?:[A-Za-z0-9+/]+=* \d+\s*)+")  # tiktoken: tokens in base 64, and their ranks


def read_checked(path: Path, folder: Path) -> tuple[str, Any]:
    """Read a file that is to be published, and refuse what should not be published under its name.

    Gives its text, and its value if it is JSON, else None. Of safetensors files: metadata and names of
    tensors.

    Raises:
        ValueError: If the file or a directory on the way to it is a link, which would publish something
            from elsewhere; if it holds a pickle or a ZIP archive, which can run code when they are loaded,
            or is no text, JSON or PNG where its name says so; if a tensor in it is not finite.
    """
    refuse_link(path, folder)
    with path.open("rb") as file:  # weights are large, and read tensor by tensor below
        content = file.read(1024 if path.suffix == ".safetensors" else -1)
    if kind := _runs_code(content, path):
        raise ValueError(
            f"{path} holds {kind}, which can run code when it is loaded. Remove it, save the adapter and its "
            "processor again, and push again. Nothing was uploaded."
        )
    if path.suffix == ".safetensors":
        header = _checked_header(path)
        return json.dumps(header, ensure_ascii=False), header
    if path.suffix == ".png" and not (content.startswith(PNG) and content.endswith(PNG_END)):
        raise ValueError(f"{path} is no PNG. Remove it and push again. Nothing was uploaded.")
    if path.suffix == ".model" and not (_is_protobuf(content) or RANKS.fullmatch(content)):
        raise ValueError(
            f"{path} is no tokenizer, neither of SentencePiece nor of tiktoken. Save the processor again and "
            "push again. Nothing was uploaded."
        )
    try:
        text = content.decode("utf-8-sig", errors="strict" if path.suffix in TEXT else "replace")
        return text, json.loads(text) if path.suffix == ".json" else None
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "text"
        raise ValueError(
            f"{path} is no {kind} in UTF-8 ({error}). Save it again and push again. Nothing was uploaded."
        ) from error


def refuse_link(path: Path, folder: Path) -> None:
    """Raise if a file, or a directory between it and the folder, is a link; the folder itself may be one.

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


def _runs_code(content: bytes, path: Path) -> str | None:
    if content.startswith(ZIP) or zipfile.is_zipfile(path):  # an archive is found from its end
        return "a ZIP archive, as torch.save writes"
    if PICKLE.match(content):
        return "a pickle"
    try:  # the protocols 0 and 1 have no mark; words are none of their instructions
        steps = list(pickletools.genops(content))
    except ValueError:
        return None
    # A list of words may begin like one ("eat."), and goes on.
    whole = steps[-1][2] == len(content.rstrip()) - 1
    return "a pickle" if len(steps) > 2 and (whole or path.suffix not in TEXT) else None


def _is_protobuf(content: bytes) -> bool:
    """Whether all of it is fields of a message of protobuf, as SentencePiece's models are."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        kind = tag & 7
        if not tag >> 3 or kind not in (0, 1, 2, 5):
            return False
        size, position = _varint(content, position) if kind in (0, 2) else (8 if kind == 1 else 4, position)
        position += 0 if kind == 0 else size
    return position == len(content) and position > 0


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A number of protobuf, and where it ends; behind the content if it does not end in it."""
    value, shift = 0, 0
    for end in range(position, min(position + 10, len(content))):
        value |= (content[end] & 0x7F) << shift
        if content[end] < 0x80:
            return value, end + 1
        shift += 7
    return 0, len(content) + 1


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
