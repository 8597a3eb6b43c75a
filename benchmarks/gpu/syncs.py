"""How often the host waits for the device in a forward and backward, stock against policy.

Counted by `torch.cuda.set_sync_debug_mode("warn")` in a forward and backward of tiny models, their inputs on
the device, the vision tower frozen. One pass before it warms up, so a policy finds its images processed and
their features kept, as in all passes of a training step but the first. Places are the innermost lines outside
torch. Copying a result to the host and data to the device count as well.

Without CUDA (tests), calls are counted that would wait there. Tensors that are on the host anyway count, too,
so that those figures are upper bounds.
"""

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .cases import policies, prompts, stock_model, with_completions
from .report import Part, reason, table

FAMILIES = ("internvl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3")
ROOT = str(Path(__file__).parents[2])
COLUMNS = ("family", "stock", "policy, sharing", "policy, not sharing", "more than stock")
WAITING = "called a synchronizing CUDA operation"

# Operators that wait on CUDA, whatever their arguments; and functions that copy to the host.
_WAITING_OPERATORS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal")
_COPIES = frozenset({torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy})


class _Operators(TorchDispatchMode):
    def __init__(self, places: Counter):
        super().__init__()
        self._places = places

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        repeats = name == "repeat_interleave" and isinstance(args[0], torch.Tensor)
        masked = name in ("index", "index_put", "index_put_") and any(
            each is not None and each.dtype is torch.bool for each in args[1]
        )
        if name in _WAITING_OPERATORS or repeats or masked:
            self._places[place()] += 1
        return function(*args, **(kwargs or {}))


class _Copies(TorchFunctionMode):
    def __init__(self, places: Counter):
        super().__init__()
        self._places = places

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _COPIES:
            self._places[place()] += 1
        return function(*args, **(kwargs or {}))


def place() -> str:
    """The innermost line of the stack that is neither torch's nor this file's."""
    for frame in reversed(traceback.extract_stack()):
        inner = "/torch/" in frame.filename or frame.filename in (__file__, warnings.__file__)
        if not inner and "/threading.py" not in frame.filename:
            name = frame.filename.removeprefix(ROOT).lstrip("/")
            return f"{name.rpartition('site-packages/')[2]}:{frame.lineno}"
    return "?"


@contextmanager
def waits(device: str) -> Iterator[Counter]:
    """Counts, by place, how often the host waits inside the block."""
    places: Counter = Counter()
    if device == "cpu":
        with _Operators(places), _Copies(places):
            yield places
        return
    with warnings.catch_warnings():
        warnings.simplefilter("always")

        def count(message: Any, *args: Any, **kwargs: Any) -> None:
            if WAITING in str(message):
                places[place()] += 1

        warnings.showwarning = count
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")


def hot_path(model: Any, processing: Any, device: str) -> Callable[[], None]:
    """A forward and backward of the decoder's weights, its inputs ready on the device; run once."""
    batch, _ = with_completions(prompts(processing, device))
    model.requires_grad_(False)
    model.get_decoder().requires_grad_(True)

    def step() -> None:
        logits = model(**batch, use_cache=False).logits
        logits.mean().backward()
        model.zero_grad(set_to_none=True)

    step()
    return step


def count(family: str, device: str) -> tuple[Counter, Counter, Counter]:
    """Places and numbers for stock, a policy that shares and one that does not."""
    model, processor = stock_model(family, "sdpa", device)
    made = policies(model, processor)
    counted = []
    sides = [(model, processor)]
    sides += [(made[sharing], made[sharing].processing_class) for sharing in ("on", "off")]
    for side, processing in sides:
        step = hot_path(side, processing, device)
        with waits(device) as places:
            step()
        counted.append(places)
    return tuple(counted)


def syncs(part: Part) -> None:
    """Write a line for each family, and the places where a policy waits more often than stock."""
    families = FAMILIES[::3] if part.tiny else FAMILIES
    part.write(__doc__.split("\n\n", 1)[1] + "\n")
    part.write(table(COLUMNS, head=True))
    more = []
    for family in families:
        try:
            stock, sharing, plain = count(family, part.device)
        except Exception as error:
            part.write(table((family, f"**FAILS**: {reason(error)}", "", "", "")))
            part.failed(error)
            continue
        numbers = [places.total() for places in (stock, sharing, plain)]
        part.write(table((family, *numbers, max(numbers[1:]) - numbers[0])))
        more.append((family, sharing - stock, stock - sharing))
    for family, added, spared in more:
        part.write(
            f"\n{family}, sharing: more often than stock at {_listed(added)}; less at {_listed(spared)}."
        )


def _listed(places: Counter) -> str:
    return ", ".join(f"{name} ({number})" for name, number in places.most_common()) or "no place"
