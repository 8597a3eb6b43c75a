"""Rotary frequencies that depend on how far the positions of a batch reach."""

import math
from collections.abc import Mapping
from typing import Any


def steady_positions(config: Any) -> float:
    """The length of a batch from which on its rotary frequencies depend on the longest row.

    "dynamic" frequencies (InternLM2's) grow with the largest position of a batch, "longrope" (Phi's) takes
    other ones for longer batches: both only beyond the length that the decoder was first trained on.

    Args:
        config: The text config.

    Returns:
        Shorter batches all have the same frequencies; infinity where every batch has.
    """
    parameters = getattr(config, "rope_parameters", None) or {}  # decoders without rotary positions have none
    kinds = [parameters, *(value for value in parameters.values() if isinstance(value, Mapping))]
    # HunYuan's checkpoints say "dynamic" of frequencies that their alpha has fixed.
    changing = [
        kind for kind in kinds if kind.get("rope_type") in ("dynamic", "longrope") and not kind.get("alpha")
    ]
    lengths = [kind.get("original_max_position_embeddings", math.inf) for kind in changing]
    return min([config.max_position_embeddings, *lengths]) if changing else math.inf


def unsteady(length: float, steady: float) -> str | None:
    """Why rows of a batch must keep the positions that stock gives them; None if they need not.

    Args:
        length: The positions that the batch reaches.
        steady: What `steady_positions` gives.
    """
    if length < steady or math.isinf(steady):
        return None
    return f"rotary frequencies depend on the longest row from {steady} positions on"
