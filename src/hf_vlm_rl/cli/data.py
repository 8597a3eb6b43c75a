"""`hf-vlm-rl data check`: every row is read and every image decoded, before a run is started."""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from .arguments import add_revision, add_trust, at_least, hub_arguments, in_flags


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `data`."""
    parser.add_argument("action", choices=("check",), help="what to do")
    parser.add_argument("dataset", help="whatever load_any reads: a file, a folder, or a Hub id")
    add_row_options(parser)
    parser.add_argument("--split", default="train", help="of a dataset with several (default: train)")
    parser.add_argument(
        "--num-proc", type=at_least(1), help="processes that decode (default: threads of one)"
    )
    parser.add_argument("--model", help="Hub id or directory; counts the tokens of each prompt")
    add_revision(parser)
    add_trust(parser)
    parser.add_argument("--write", type=Path, metavar="FILE", help="a .jsonl for the rows that can be used")
    parser.add_argument("--page", type=Path, metavar="FILE", help="an .html with pictures of rows")


def run(options: argparse.Namespace) -> int:
    """Read every row, decode every image, and list what is wrong, with file and line.

    Found are rows that cannot be read, images that are missing, unreadable, huge or truncated, rows that are
    repeated, and, as notes, images that EXIF turns and copies under other names. Images at http(s) addresses
    are not fetched. Exit status: 0 if every row can be used, 1 if not.
    """
    from ..data.check import check_data

    report = check_data(
        options.dataset,
        **row_options(options),
        num_proc=options.num_proc,
        processing_class=None if options.model is None else _processing_class(options),
        write=options.write,
        page=options.page,
    )
    report.findings = [
        replace(each, reason=flagged(each.reason)) if each.kind == "row" else each for each in report.findings
    ]
    print(report)  # noqa: T201
    return int(report.clean < report.rows)


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """Add what loaders take besides a source; `row_options` reads it."""
    parser.add_argument("--image-folder", type=Path, help="paths of images are relative to it")
    parser.add_argument("--question", help="of a folder that has a folder of images for each answer")
    parser.add_argument("--answer", default="answer", help="column for the answer (default: answer)")
    for name, use in (("--strings", "keep as text"), ("--drop", "leave out")):
        parser.add_argument(name, nargs="+", default=(), metavar="FIELD", help=f"fields to {use}")
    parser.add_argument("--outside-images", action="store_true", help="let paths of images lead out (../)")


def row_options(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `add_row_options` for a loader, and the split."""
    names = ("split", "image_folder", "question", "answer", "strings", "drop", "outside_images")
    return {name: vars(options)[name] for name in names}


def flagged(message: str) -> str:
    """What Python's messages say of rows, with flags: `strings=['id']` is `--strings id`."""
    flags = "--image-folder --question --answer --strings --drop --outside-images"
    return in_flags(re.sub(r"\b(strings|drop)=\[(.*?)\]", r"\1=\2", message), flags)


def _processing_class(options: argparse.Namespace) -> Any:
    import torch

    from ..loading.checkpoint import read_checkpoint
    from ..loading.meta import policy_on_meta
    from ..processing.images.store import ImageStore

    checkpoint = read_checkpoint(options.model, hub_arguments(options))
    return policy_on_meta(checkpoint, torch.bfloat16, ImageStore()).processing_class
