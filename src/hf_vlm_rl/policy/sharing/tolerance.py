"""What a decoder is tested on before its first use, and what rounding may make of a difference."""

from typing import Any

import torch

# Largest difference, as a share of the largest hidden state. What rounding makes of it was 7e-6 at most, in
# 77 classes, and 7e-7 on pretrained weights; what a layer does that begins anew can be as little as 2e-4.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 5e-5}
TOLERANCE_HALF = 0.1


def tolerance(dtype: torch.dtype, full: dict[torch.dtype, float] = TOLERANCE) -> float:
    """What rounding may make of a difference, as a share of the largest value.

    Args:
        dtype: Of the numbers.
        full: What it may make of dtypes that are multiplied in full precision; others have `TOLERANCE_HALF`.
    """
    if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":  # TF32, or bfloat16
        return TOLERANCE_HALF
    return full.get(dtype, TOLERANCE_HALF)


def ordinary_ids(decoder: Any, count: int) -> torch.Tensor:
    """(count,) different ids from the middle half of a decoder's vocabulary, on its device.

    The first and last ones are often bytes, special tokens or rows that were never trained. On these, trained
    decoders may make a thousand times as much of a rounding error as on words.

    Args:
        decoder: A text decoder whose vocabulary has at least 2 x count words.
        count: How many.
    """
    words = decoder.config.vocab_size
    return words // 4 + torch.arange(count, device=decoder.device) * (words // 2) // count
