"""What ranks must do together, however much their batches differ.

Weights spread over ranks (FSDP, ZeRO-3): a sharded module gathers its weights from all ranks when it runs. A
rank that calls it once more than the others, because its batch has one more image shape or the only image at
all, waits for them for ever.

Whole weights (DDP, ZeRO-1 and 2): gradients are averaged over ranks. A rank that has an image waits for the
tower's gradients from one that has none.
"""

import torch
from torch import nn

from .._ranks import ranks


def is_sharded(module: nn.Module) -> bool:
    """Whether parts of `module` wait for other ranks when they run."""
    if ranks() == 1:
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    # DeepSpeed marks the parameters that ZeRO-3 partitions.
    split = any(isinstance(p, DTensor) or hasattr(p, "ds_id") for p in module.parameters())
    return split or any(isinstance(part, FullyShardedDataParallel) for part in module.modules())


def gradients_awaited(backbone: nn.Module, language: str) -> bool:
    """Whether other ranks may wait for this one's gradients of parts outside the decoder `language`."""
    if ranks() == 1 or not torch.is_grad_enabled():
        return False
    decoder = f"{language}."
    return any(p.requires_grad and not name.startswith(decoder) for name, p in backbone.named_parameters())
