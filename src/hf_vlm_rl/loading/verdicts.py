"""Verdicts of the self-check on disk, each under a hash of everything that it depends on."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

from ..processing.images.disk import default_directory

logger = logging.get_logger(__name__)

# Goes up when the check changes.
VERSION = 6

# Libraries whose files are too many to read, so that no hash of them is in the key.
BY_RELEASE = ("torch", "builtins", "abc", "typing")


def place_of(policy: Any) -> Path | None:
    """The file of a policy's verdict; None, so that none is kept, if code of its classes is in no file.

    Its name is a hash of the model's class, config, processor, dtype and family, and of the files that its
    classes come from: code that is edited in place, or fetched anew from the Hub, is checked again.
    """
    # Private fields say where a config was read from and what an adapter noted: they change no number.
    config = {name: value for name, value in policy.config.to_diff_dict().items() if not name.startswith("_")}
    sources = {name: _source(name) for name in _homes(policy)}
    if None in sources.values():
        return None
    facts = [
        VERSION,
        transformers.__version__,
        torch.__version__,
        f"{type(policy).__module__}.{type(policy).__qualname__}",
        str(policy.dtype),
        config,
        type(policy.processing_class).__qualname__,
        policy.processing_class.image_settings(),
        repr(policy.family),
        sources,
    ]
    name = hashlib.sha256(json.dumps(facts, default=repr, sort_keys=True).encode()).hexdigest()[:32]
    return default_directory() / "families" / f"{name}.json"


def read(place: Path | None) -> dict[str, Any] | None:
    """A verdict that was kept; None if there is none, or only half of one."""
    try:
        return None if place is None else json.loads(place.read_text())
    except (OSError, ValueError):
        return None


def keep(place: Path | None, facts: Mapping[str, Any]) -> None:
    """Write a verdict's file whole or not at all; with no `place`, the next process compares again."""
    if place is None:
        return
    part = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(facts))
        part.replace(place)
    except OSError as error:
        logger.warning(f"Cannot keep the result of comparing {facts['model']} with stock: {error}")


def _homes(policy: Any) -> Iterator[str]:
    """The Python modules that the classes of a policy's modules and processors come from."""
    processing = policy.processing_class
    objects = (*policy.modules(), processing, processing.image_processor)
    names = {base.__module__ for kind in {type(each) for each in objects} for base in kind.__mro__}
    return (name for name in sorted(names) if name.partition(".")[0] not in BY_RELEASE)


def _source(name: str) -> str | None:
    """A hash of the file of a Python module; None if it has none, as a notebook's cells."""
    file = getattr(sys.modules.get(name), "__file__", None)  # modules made at run time have none
    try:
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None
