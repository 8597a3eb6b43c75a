"""What arguments of commands may be."""

import argparse
import re


def positive(kind: type[int] | type[float]) -> type:
    """`type=` of an argument that is a number above 0."""

    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a number above 0")
        return value

    return read


def gibibytes(text: str) -> int:
    """Bytes of `24GB`; what vendors call a GB of GPU memory is 2^30 bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB|GiB|G)?", text, flags=re.IGNORECASE)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a size as 24GB")
    return int(float(found[1]) * (1 << 30))


def pixels(text: str) -> tuple[int, int]:
    """Width and height of `1024x768`."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected width x height as 1024x768")
    return int(found[1]), int(found[2])
