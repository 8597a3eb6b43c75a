"""Weights that are spread over ranks (FSDP, ZeRO-3): every rank must call every part equally often.

A sharded module gathers its weights from all ranks when it runs. A rank that calls it once more than the
others, because its batch has one more image shape or the only image at all, waits for them for ever.
"""

import torch
from torch import distributed, nn


def ranks() -> int:
    """Number of processes of this run; 1 without a process group."""
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


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


def most(number: int, device: torch.device) -> int:
    """The largest `number` of all ranks, each of which must ask."""
    tensor = torch.tensor(number, device=device)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    return int(tensor)
