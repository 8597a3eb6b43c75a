"""Several processes that evaluate together: who does what, and errors that stop all of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.distributed.fsdp import FSDPModule

from .._ranks import from_all, from_first, ranks
from ..policy.ranks import is_sharded

T = TypeVar("T")

# What its processes do, for the error that the others get when one of them fails.
TASK = "The evaluation"


class Ranks:
    """The processes of a run; one, unless `together`.

    Where parameters are sharded (ZeRO-3, FSDP) a forward needs all processes: each then does all rows, so
    that they call the same modules equally often. Else each does its share.
    """

    def __init__(self, policy: torch.nn.Module, together: bool):
        self.count = ranks() if together else 1
        self.index = distributed.get_rank() if self.count > 1 else 0
        self.sharded = self.count > 1 and is_sharded(policy)

    def share(self, rows: list[T]) -> list[T]:
        """The rows of a window that this process generates for."""
        return rows if self.sharded else rows[self.index :: self.count]

    def gather(self, work: Callable[[], list[T]]) -> list[T]:
        """Every process's `work()`, in one list, on every process.

        Raises:
            RuntimeError: If another process's work raised; this process's own error as it is.
        """
        if self.count == 1:
            return work()
        results = from_all(work, TASK)
        return results[0] if self.sharded else [item for result in results for item in result]

    def on_first(self, work: Callable[[], T]) -> T:
        """The first process's `work()`, on every process; errors as in `gather`."""
        return work() if self.count == 1 else from_first(work, TASK)


@contextmanager
def gathered(policy: Any) -> Iterator[None]:
    """Under FSDP2, the root's weights on every process: `generate` also reads them outside of its forward."""
    if not isinstance(policy, FSDPModule):
        yield
        return
    model: Any = policy
    # A root that was not called yet does not know its parts: they would take themselves for roots.
    token = torch.tensor([[model.processing_class.eos_token_id]], device=model.device)
    with torch.no_grad():
        model(input_ids=token, attention_mask=torch.ones_like(token), use_cache=False)
    policy.unshard()
    try:
        yield
    finally:
        policy.reshard()
