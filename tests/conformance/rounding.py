"""How far rounding in float32 may move logits from stock's where a batch is laid out otherwise."""

import torch

# Of the largest value, in float32 on one thread: each image and video goes through the tower by itself, which
# stock does in a batch.
RTOL = 2e-5
# Recurrent layers sum in other chunks behind padding: stock's rows alone are up to 4e-5 from float64, rows of
# a padded batch up to 6.5e-5.
RTOL_RECURRENT = 1e-4
# Of a gradient's largest value. Recurrent layers carry on the last bits of their states: stock's Qwen3.5-MoE
# is 2.9e-4 from a run in float64 (seed 1), and ours is as far from it on another side.
OF_GRADIENTS, OF_GRADIENTS_RECURRENT = 1e-4, 6e-4


def assert_equal(ours: torch.Tensor, stock: torch.Tensor, rtol: float = RTOL) -> None:
    torch.testing.assert_close(ours, stock, rtol=0, atol=rtol * stock.abs().max().item())


def rtol_of_rows(policy) -> float:
    """For rows of a padded batch beside stock's rows alone."""
    return RTOL_RECURRENT if policy.base_model.sharing.recurrent else RTOL


def assert_equal_gradients(policy, found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Gradients by name, each within rounding's share of its largest value, or of a hundredth of all's."""
    tolerance = OF_GRADIENTS_RECURRENT if policy.base_model.sharing.recurrent else OF_GRADIENTS
    assert set(found) == set(expected)
    largest = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        scale = max(gradient.abs().max(), 1e-2 * largest)
        assert (found[name] - gradient).abs().max() < tolerance * scale, name
