"""`hf-vlm-rl convert`."""

import argparse

from .arguments import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `convert`."""
    parser.add_argument("source", help="Hub id or directory of a checkpoint in OpenGVLab's InternVL format")
    parser.add_argument("destination", help="directory to write; must not exist or be empty")
    parser.add_argument("--revision", help="branch, tag or commit of the Hub id")
    parser.add_argument(
        "--shard-gb", type=positive(float), default=5.0, help="largest weight file, in GB (default: 5)"
    )


def run(given: argparse.Namespace) -> None:
    """Write an InternVL checkpoint in OpenGVLab's format as one that plain transformers loads."""
    from ..loading.internvl_chat.convert import convert

    located = {} if given.revision is None else {"revision": given.revision}
    convert(given.source, given.destination, int(given.shard_gb * 1e9), **located)
