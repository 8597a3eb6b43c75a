"""What arguments of commands may be."""

import argparse


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
