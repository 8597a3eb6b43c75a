"""`hf-vlm-rl clean`: images and notes that nothing used for some time leave the store's directory."""

import argparse

from .arguments import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clean`."""
    parser.add_argument(
        "--older-than",
        type=positive,
        required=True,
        metavar="DAYS",
        help="remove what no process read or wrote for so many days",
    )
    parser.add_argument("--directory", help="of an ImageStore (default: the one that policies use)")


def run(options: argparse.Namespace) -> None:
    """Remove images and notes that no run used for some time.

    A dataset that was encoded with them must be encoded again.
    """
    from ..processing.images.disk import Directory, default_directory

    disk = Directory(options.directory or default_directory())
    if not disk.root.is_dir():
        raise FileNotFoundError(f"Got {disk.root}, which is no directory. Expected an ImageStore's.")
    cleaned = disk.clean(options.older_than)
    others = f"; {cleaned.refused} of other users stay" if cleaned.refused else ""
    print(f"{disk.root}: {cleaned.files} files removed, {cleaned.nbytes / 1e6:.1f} MB{others}")  # noqa: T201
