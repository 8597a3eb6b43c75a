"""Drops token types that a trainer passes to a model that takes none.

Trainers with tools that return images pass every model the kinds of its tokens, under one name. A model
without such an input would refuse it, or hand it on to modules that nobody knows.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from ...errors import UnsupportedModelError

TYPES = ("token_type_ids", "mm_token_type_ids")


def without_spare_types(backbone: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """A forward's arguments without token types that its backbone has no input for.

    They may be dropped where they follow from the ids: 0 everywhere, or 1 at image tokens and 0 elsewhere.

    Raises:
        UnsupportedModelError: If they have other values.
    """
    passed = [name for name in TYPES if kwargs.get(name) is not None]
    accepted = inspect.signature(type(backbone).forward).parameters if passed else ()
    spare = [name for name in passed if name not in accepted]
    for name in spare:
        _check_spare(backbone, name, kwargs)
    return {name: value for name, value in kwargs.items() if name not in spare} if spare else kwargs


def _check_spare(backbone: Any, name: str, kwargs: Mapping[str, Any]) -> None:
    ids = kwargs.get("input_ids")
    types = torch.as_tensor(kwargs[name], device=None if ids is None else ids.device)
    informative = types != 0
    if ids is not None and ids.shape == types.shape:
        informative &= (ids != backbone.processing_class.state.placeholder_id) | (types != 1)
    if bool(informative.any()):
        raise UnsupportedModelError(
            f"Got {name} with the values {sorted(set(types.flatten().tolist()))}. {type(backbone).__name__} "
            "takes none; expected 1 at image tokens and 0 elsewhere, or no such argument."
        )
