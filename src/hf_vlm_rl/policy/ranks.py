"""What ranks must do together, however much their batches differ.

Weights spread over ranks (FSDP, ZeRO-3): a sharded module gathers its weights from all ranks when it runs. A
rank that calls it once more than the others, because its batch has one more image shape or the only image at
all, waits for them for ever.

Whole weights (DDP, ZeRO-1 and 2): gradients are averaged over ranks. A rank that has an image waits for the
tower's gradients from one that has none.
"""

import os
from collections.abc import Sequence

import torch
from torch import distributed, nn


def ranks() -> int:
    """Number of processes of this run; 1 without a process group."""
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def launched_ranks() -> int:
    """Number of processes that a launcher started for this run, with or without a process group."""
    return max(ranks(), int(os.environ.get("WORLD_SIZE", 1)))


def is_sharded(module: nn.Module) -> bool:
    """Whether parts of `module` wait for other ranks when they run."""
    if ranks() == 1:
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    # DeepSpeed marks the parameters that ZeRO-3 partitions.
    return any(isinstance(p, DTensor) or hasattr(p, "ds_id") for p in module.parameters()) or any(
        isinstance(part, FullyShardedDataParallel) for part in module.modules()
    )


def gradients_awaited(backbone: nn.Module, language: str) -> bool:
    """Whether other ranks may wait for this one's gradients of parts outside the decoder `language`."""
    if ranks() == 1 or not torch.is_grad_enabled():
        return False
    decoder = f"{language}."
    return any(p.requires_grad and not name.startswith(decoder) for name, p in backbone.named_parameters())


def most(numbers: Sequence[int], device: torch.device) -> list[int]:
    """The largest of all ranks' numbers, place by place; each rank must call this with as many numbers."""
    tensor = torch.tensor(numbers, device=device)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    return tensor.tolist()
