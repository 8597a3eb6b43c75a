"""Copies from the host to the model's device."""

import torch


def without_waiting(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor of the host to a device, without waiting for the work that the device has to do.

    CUDA reads the values from ordinary host memory before the call returns, so they may change afterwards.
    A tensor that is on `device` already comes back as it is.
    """
    return tensor.to(device, non_blocking=device.type == "cuda")
