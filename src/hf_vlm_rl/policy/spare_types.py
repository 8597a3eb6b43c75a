"""Token types that a trainer makes of the ids, for models that take none.

Trainers of tools that return images say of each token whether it is an image's, under one name for all
models. A model that has no such input would refuse it, or pass it on to somewhere unknown.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import UnsupportedModelError

TYPES = ("token_type_ids", "mm_token_type_ids")


def without_spare_types(backbone: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """A forward's arguments without token types that its backbone has no input for.

    They may be dropped where they say nothing that the ids do not say: 0 everywhere, or 1 at image tokens and
    0 elsewhere.

    Args:
        backbone: A policy's backbone.
        kwargs: The arguments of its forward, or of `generate`.

    Raises:
        UnsupportedModelError: If they say something else.
    """
    given = [name for name in TYPES if kwargs.get(name) is not None]
    taken = inspect.signature(type(backbone).forward).parameters if given else ()
    spare = [name for name in given if name not in taken]
    for name in spare:
        _check_spare(backbone, name, kwargs)
    return {name: value for name, value in kwargs.items() if name not in spare} if spare else kwargs


def _check_spare(backbone: Any, name: str, kwargs: Mapping[str, Any]) -> None:
    types, ids = torch.as_tensor(kwargs[name]), kwargs.get("input_ids")
    said = types != 0
    if ids is not None and ids.shape == types.shape:
        said &= (ids != backbone.processing_class.state.placeholder_id) | (types != 1)
    if bool(said.any()):
        raise UnsupportedModelError(
            f"Got {name} with the values {sorted(set(types.flatten().tolist()))}. {type(backbone).__name__} "
            "takes none; expected 1 at image tokens and 0 elsewhere, or no such argument."
        )
