"""How far rounding in float32 may move logits from stock's where a batch is laid out otherwise."""

import torch

# Of the largest value, in float32 on one thread: each image and video goes through the tower by itself, which
# stock does in a batch.
RTOL = 2e-5
# Recurrent layers sum in other chunks behind padding: stock's rows alone are up to 4e-5 from float64, rows of
# a padded batch up to 6.5e-5.
RTOL_RECURRENT = 1e-4


def assert_equal(ours: torch.Tensor, stock: torch.Tensor, rtol: float = RTOL) -> None:
    torch.testing.assert_close(ours, stock, rtol=0, atol=rtol * stock.abs().max().item())


def rtol_of_rows(policy) -> float:
    """For rows of a padded batch beside stock's rows alone."""
    return RTOL_RECURRENT if policy.base_model.sharing.recurrent else RTOL
