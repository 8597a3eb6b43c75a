"""`hf-vlm-rl tiny`: a checkpoint of random weights, to try data and scripts with."""

import argparse
import difflib
from pathlib import Path

from .arguments import SEEDS, at_least


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `tiny`."""
    parser.add_argument("directory", type=Path, help="to write; must not exist or be empty")
    parser.add_argument(
        "--family", default="qwen2_5_vl", help="model_type of its config.json (default: qwen2_5_vl)"
    )
    parser.add_argument("--seed", type=at_least(0, SEEDS), default=0, help="of the weights (default: 0)")


def run(options: argparse.Namespace) -> None:
    """Write a tiny random checkpoint: model, processor and generation config.

    It has the classes, the chat template and the image tokens of its family, less than a million parameters
    and a vocabulary of some 400 pieces. Whatever takes a model's name takes its directory: the examples and
    the code of the documentation then run on a CPU in seconds. Nothing is downloaded. It knows nothing: its
    answers are noise until it is trained.
    """
    # Refused before torch is imported.
    if options.directory.exists() and (not options.directory.is_dir() or any(options.directory.iterdir())):
        raise ValueError(
            f"'{options.directory}' exists and is no empty directory. Remove it or choose another one."
        )
    from transformers.utils import logging

    from ..families.tiny import FAMILIES, write_checkpoint

    family = options.family
    if family not in FAMILIES:
        close = difflib.get_close_matches(family, FAMILIES, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"Got --family {family}, of which there is no tiny checkpoint.{meant} Expected one of "
            f"{', '.join(FAMILIES)}."
        )
    logging.disable_progress_bar()  # it is a matter of milliseconds
    write_checkpoint(family, options.directory, options.seed)
    print(f"{options.directory}: a tiny {family} of random weights, in float32")  # noqa: T201
