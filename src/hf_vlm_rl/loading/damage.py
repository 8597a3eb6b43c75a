"""What other libraries raise on the files of a checkpoint, as an error that names it."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import CheckpointError, UnsupportedModelError

MOST_LAYERS = 1000
LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "depth")


@contextlib.contextmanager
def damage_named(source: str, errors: type[Exception] = Exception) -> Iterator[None]:
    """A context for reading a checkpoint's files, and for making a model without values of its config.

    `errors` are taken for damage; `ImportError`, `OSError` and `ValueError`, such as ours, pass.

    Raises:
        CheckpointError: In the place of such an error.
    """
    try:
        yield
    except (ImportError, OSError, ValueError):
        raise
    except errors as error:
        raise CheckpointError(
            f"{source!r} cannot be read ({type(error).__name__}: {error}). A file of it is damaged or was "
            "edited; download it again."
        ) from error


def check_depth(stored: Mapping[str, Any], source: str) -> None:
    """Refuse a config with so many layers that transformers' config class, or the model, never gets made.

    Raises:
        UnsupportedModelError: If the model or a part of it has more than `MOST_LAYERS`.
    """
    for key, value in stored.items():
        if isinstance(value, Mapping):
            check_depth(value, source)
        if key in LAYERS and isinstance(value, int | float) and value > MOST_LAYERS:
            raise UnsupportedModelError(
                f"config.json of {source!r} has {key}={value}. Expected {MOST_LAYERS} or fewer."
            )
