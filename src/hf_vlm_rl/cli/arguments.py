"""What arguments of commands may be, and how messages name them."""

import argparse
import math
import re
from collections.abc import Callable
from typing import Any


def positive(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number above 0")
    return value


def not_negative(text: str) -> float:
    """A number from 0 on."""
    return 0.0 if text.strip() in ("0", "0.0") else positive(text)


PORTS = 65_535
SEEDS = 2**32 - 1


def at_least(smallest: int, largest: float = math.inf) -> Callable[[str], int]:
    """`type=` of an argument that is a whole number from `smallest` on, up to `largest`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if not smallest <= value <= largest:
            to = "on" if largest == math.inf else f"to {largest}"
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from {smallest} {to}")
        return value

    return read


def gibibytes(text: str) -> int:
    """Bytes of `24GB`; what vendors call a GB of GPU memory is 2^30 bytes."""
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB|GiB|G)?", text, flags=re.IGNORECASE)
    if not size or not 0 < float(size[1]) < 1e6:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a size as 24GB")
    return int(float(size[1]) * (1 << 30))


def pixels(text: str) -> tuple[int, int]:
    """Width and height of `1024x768`."""
    size = re.fullmatch(r"(\d+)x(\d+)", text)
    if not size or "0" in (size[1].lstrip("0") or "0", size[2].lstrip("0") or "0"):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected width x height as 1024x768")
    from ..processing.images.read import max_image_pixels

    width, height = int(size[1]), int(size[2])
    if width * height > (limit := max_image_pixels()):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected at most {limit} pixels")
    return width, height


def add_revision(parser: argparse.ArgumentParser) -> None:
    """Add `--revision` of a model; `hub_arguments` reads it."""
    parser.add_argument("--revision", help="branch, tag or commit of the Hub id")


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust-remote-code`; `hub_arguments` reads it."""
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run the code that the checkpoint brings"
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`; `device_name` reads it."""
    parser.add_argument("--device", help="default: an accelerator if there is one")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add `--dtype` of a model's weights."""
    dtypes = ("auto", "bfloat16", "float16", "float32")
    parser.add_argument("--dtype", choices=dtypes, default="auto", help="default: the checkpoint's")


def device_name(name: str | None) -> str:
    """The device that `--device` names; without it an accelerator if there is one, else the CPU.

    Raises:
        ValueError: If torch has no such device here.
    """
    import torch

    if name is None:
        return str(torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu")
    try:
        if torch.device(name).type == "meta":
            raise RuntimeError("tensors there have no values")
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"Got --device {name}: {str(error).splitlines()[0]}") from error
    return name


def hub_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Where on the Hub a model is and whether its code is trusted, for transformers' loading functions."""
    values = vars(options)
    return {name: values[name] for name in ("revision", "trust_remote_code") if values.get(name)}


def in_flags(message: str, usage: str) -> str:
    """A message of the Python functions, with a command's flags in place of their keyword arguments.

    `base_model="user/base"` becomes `--base-model user/base` if the command's usage lists that flag.
    """
    flags = {flag[2:].replace("-", "_"): flag for flag in re.findall(r"--[a-z][a-z-]*", usage)}
    keyword = rf"\b({'|'.join(flags)})=(True\b|'[^']*'|\"[^\"]*\"|)"

    def in_flag(match: re.Match) -> str:
        name, value = match.groups()
        return flags[name] if value == "True" else f"{flags[name]} {value[1:-1]}"

    return re.sub(keyword, in_flag, message) if flags else message
