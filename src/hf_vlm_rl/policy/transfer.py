"""Copies between the host and the model's device, for which the host waits as seldom as it can."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def without_waiting(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor of the host to a device, without waiting for the work that the device has to do.

    CUDA reads pinned memory when it gets there. That memory is a copy, so `tensor` may change afterwards. A
    tensor that is on `device` already comes back as it is.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def upload(tensors: Sequence[torch.Tensor | None], device: torch.device) -> list[Any]:
    """Tensors of the host, of one dtype, on a device: in one copy, and without waiting. None stays None."""
    if device.type == "cpu":
        return list(tensors)
    tables = [tensor for tensor in tensors if tensor is not None]
    together = without_waiting(torch.cat([table.flatten() for table in tables]), device)
    parts = iter(together.split([table.numel() for table in tables]))
    return [tensor if tensor is None else next(parts).view(tensor.shape) for tensor in tensors]


def download(tensors: Sequence[torch.Tensor | None]) -> list[Any]:
    """Tensors of whole numbers on the host, in one copy if they are on one device. None stays None."""
    tables = [tensor for tensor in tensors if tensor is not None]
    if len({table.device for table in tables}) != 1 or tables[0].device.type == "cpu":
        return [tensor if tensor is None else tensor.cpu() for tensor in tensors]
    together = torch.cat([table.flatten().long() for table in tables]).cpu()
    parts = iter(together.split([table.numel() for table in tables]))
    return [each if each is None else next(parts).view(each.shape).to(each.dtype) for each in tensors]


def on_host(function: Callable[..., tuple[torch.Tensor, ...]], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a function of whole numbers returns, computed on the host and brought back.

    Stock counts positions in three dimensions by loops that read the device some nine times for each row.
    """
    names = [name for name, value in kwargs.items() if isinstance(value, torch.Tensor)]
    devices = {kwargs[name].device for name in names}
    whole = not any(kwargs[name].is_floating_point() for name in names)
    if len(devices) != 1 or not whole:
        return list(function(**kwargs))
    copies = download([kwargs[name] for name in names])
    return upload(function(**kwargs | dict(zip(names, copies, strict=True))), devices.pop())
