"""Rotary frequencies that depend on how far the positions of a batch reach."""

import math
from collections.abc import Mapping
from typing import Any

from .report import Refused


def steady_positions(config: Any) -> float:
    """The length of a batch from which on its rotary frequencies depend on the longest row.

    "dynamic" frequencies (InternLM2's) change with the largest position of a batch, "longrope" (Phi's) takes
    others for longer batches. Both do so only beyond the length that the decoder was first trained on. All
    shorter batches have the same frequencies; infinity if all batches have.
    """
    parameters = getattr(config, "rope_parameters", None) or {}  # decoders without rotary positions have none
    kinds = [parameters, *(value for value in parameters.values() if isinstance(value, Mapping))]
    # HunYuan's checkpoints say "dynamic", though their alpha fixes the frequencies.
    changing = [
        kind for kind in kinds if kind.get("rope_type") in ("dynamic", "longrope") and not kind.get("alpha")
    ]
    lengths = [kind.get("original_max_position_embeddings", math.inf) for kind in changing]
    return min([config.max_position_embeddings, *lengths]) if changing else math.inf


def require_steady(length: float, steady: float) -> None:
    """Refuse a batch whose rows would get other rotary frequencies in a shorter batch.

    `length` is the largest position of the batch plus 1, `steady` what `steady_positions` returns.

    Raises:
        Refused: If the batch is so long that its rotary frequencies depend on its longest row.
    """
    if length >= steady and not math.isinf(steady):
        raise Refused(f"rotary frequencies depend on the longest row from {steady} positions on")
