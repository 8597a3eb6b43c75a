"""What rounding may make of a difference between two ways to compute the same."""

import torch

# Largest difference, as a share of the largest hidden state. A path that is wrong is off by its size.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
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
