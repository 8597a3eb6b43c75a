"""`hf-vlm-rl convert`: an InternVL checkpoint in its original format becomes one of transformers'."""

import argparse

from .arguments import add_revision, hub_arguments, positive


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `convert`."""
    parser.add_argument("source", help="Hub id or directory of a checkpoint in OpenGVLab's InternVL format")
    parser.add_argument("destination", help="directory to write; must not exist or be empty")
    add_revision(parser)
    parser.add_argument(
        "--shard-gb", type=positive, default=5.0, help="largest weight file, in GB (default: 5)"
    )


def run(options: argparse.Namespace) -> None:
    """Write an InternVL checkpoint in OpenGVLab's format as one that plain transformers loads."""
    from ..loading.internvl_chat.convert import convert

    convert(options.source, options.destination, int(options.shard_gb * 1e9), **hub_arguments(options))
