"""Copies from the host to the model's device."""

import torch


def without_waiting(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on a device, without waiting until the device has done what it is at.

    CUDA takes the values from ordinary host memory before the call returns, so they may change afterwards.

    Args:
        tensor: On the CPU; on `device` already, it comes back as it is.
        device: Where it goes.
    """
    return tensor.to(device, non_blocking=device.type == "cuda")
