"""Ids for people: tickets inside them become the placeholders that they replace."""

from typing import Any

import numpy as np
import torch

from .images.reference import is_image_list
from .state import ProcessingState


def erased(state: ProcessingState, ids: Any) -> Any:
    """Ids without the tickets that they hold."""
    if isinstance(ids, torch.Tensor | np.ndarray):
        if not bool(state.marks(torch.as_tensor(ids)).any()):
            return ids
        ids = ids.tolist()
    if not is_image_list(ids) or not ids:
        return ids
    if isinstance(ids[0], int):
        return ids if state.behind(ids) is None else state.codec.erase(ids)
    return [erased(state, row) for row in ids]
