"""How the processes of a run talk to each other."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")


def ranks() -> int:
    """Number of processes of this run; 1 without a process group."""
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def launched_ranks() -> int:
    """Number of processes that a launcher started for this run, with or without a process group."""
    return max(ranks(), int(os.environ.get("WORLD_SIZE", 1)))


def most(numbers: Sequence[int], device: torch.device) -> list[int]:
    """The largest of all ranks' numbers, place by place; each rank must call this with as many numbers."""
    tensor = torch.tensor(numbers, device=device)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    return tensor.tolist()


def from_all(work: Callable[[], T], task: str) -> list[T]:
    """Every process's `work()`, by rank, on every process; `task` is its name in errors: "The rollout".

    Raises:
        RuntimeError: If another process's work raised; this process's own error as it is.
    """
    outcome, error = _outcome(work)
    outcomes: list[Any] = [None] * ranks()
    distributed.all_gather_object(outcomes, outcome)
    return _results(outcomes, error, task)


def from_first(work: Callable[[], T], task: str) -> T:
    """The first process's `work()`, on every process; the others wait for it. Errors as of `from_all`."""
    if ranks() == 1:
        return work()
    outcome, error = _outcome(work) if distributed.get_rank() == 0 else (None, None)
    outcomes: list[Any] = [outcome]
    distributed.broadcast_object_list(outcomes, src=0)
    return _results(outcomes, error, task)[0]


def _outcome(work: Callable[[], Any]) -> tuple[tuple[Any, str | None], Exception | None]:
    """What other processes are told of a work, its result or its error, and the error itself."""
    try:
        return (work(), None), None
    except Exception as error:  # the others wait for this process: they are told before it goes on
        return (None, f"{type(error).__name__}: {error}"), error


def _results(outcomes: Sequence[tuple[Any, str | None]], error: Exception | None, task: str) -> list[Any]:
    if error is not None:
        raise error
    for rank, (_, message) in enumerate(outcomes):
        if message is not None:
            raise RuntimeError(f"{task} failed in process {rank}: {message}")
    return [result for result, _ in outcomes]
