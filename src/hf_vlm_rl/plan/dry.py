"""Runs a model whose weights are on the meta device: every shape and no number, without memory.

What comes from the CPU stays there, with its values: ids, grids and masks decide what a model does. What a
GPU does otherwise than the meta device is done as there: fused attention, and autocast.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# What autocast runs in the lower precision, and in float32 (torch's lists for CUDA).
_LINEAR = ("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum")
# Of `multi_head_attention_forward`, a mode sees the whole and none of the products inside.
_WHOLE = ("multi_head_attention_forward", "scaled_dot_product_attention")
LOWER = frozenset([*_LINEAR, *_WHOLE, "conv1d", "conv2d", "conv3d"])
_NORMS = ("layer_norm", "group_norm", "norm", "softmax", "log_softmax", "logsumexp", "softplus")
_SUMS = ("sum", "prod", "cumsum", "cross_entropy", "nll_loss")
SINGLE = frozenset([*_NORMS, *_SUMS, "pow", "__pow__", "rsqrt", "exp", "log"])
# Integers that would be made on the meta device.
FACTORIES = frozenset(["arange", "zeros", "ones", "full", "tensor", "as_tensor"])

_INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)


@contextlib.contextmanager
def dry_run(kernels: "Kernels") -> Iterator["LiveBytes"]:
    """A context in which models with weights on the meta device run forward and backward; yields the count.

    Backward is `torch.autograd.backward(loss)`; models that recompute layers in it need
    `kernels.checkpointing`.
    """
    with _Devices(), LiveBytes() as live, kernels:
        yield live


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of every storage that is made in its context, until it is freed, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation and count what it made."""
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counted=False)  # made before: weights, inputs
        output = func(*args, **kwargs or {})
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counted=True)
        return output

    def _see(self, tensor: torch.Tensor, counted: bool) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if counted else 0
        self._known[key] = weakref.ref(storage, lambda _: self._freed(key, size))
        self.live += size
        self.peak = max(self.peak, self.live)

    def _freed(self, key: int, size: int) -> None:
        del self._known[key]
        self.live -= size


class _Devices(TorchDispatchMode):
    """Lets tensors of the meta device meet integers on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _INDEXING:
            args = (args[0], _positions(args[1]), *args[2:])
        on_meta = [leaf.is_meta for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(on_meta) and not all(on_meta):
            args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to("meta"), (args, kwargs))
        return func(*args, **kwargs or {})


def _positions(indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Indices without masks, whose results have no shape on the meta device."""
    positions: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype is torch.bool and not index.is_meta:
            positions += index.nonzero().unbind(1)
        else:
            positions.append(index)
    return positions


class Kernels(TorchFunctionMode):
    """Fused attention and autocast, as a GPU runs them; `autocast` is the dtype of the trainer's, if any."""

    def __init__(self, autocast: torch.dtype | None):
        super().__init__()
        self._autocast = autocast
        self._cast: dict[int, torch.Tensor] = {}

    def checkpointing(self) -> dict[str, Any]:
        """`gradient_checkpointing_kwargs` with which layers are recomputed in this mode, too."""
        return {
            "use_reentrant": False,
            "preserve_rng_state": False,  # there is none on the meta device
            "context_fn": lambda: (contextlib.nullcontext(), self),
        }

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run a function, in the dtype of autocast and on the device that it can run on."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")  # getters of tensors have none
        if self._autocast is not None and (name in LOWER or name in SINGLE):
            args, kwargs = tree_map_only(
                torch.Tensor, self._lower if name in LOWER else _single, (args, kwargs)
            )
        if name == "scaled_dot_product_attention":
            return _attention(*args, **kwargs)
        if name == "to":  # neither are numbers read from the meta device
            args = tuple(_on(args[0].device, arg) for arg in args)
            kwargs = {key: _on(args[0].device, arg) for key, arg in kwargs.items()}
        # As it is made, not as it was asked for: torch takes Python's `int` as well.
        if name in FACTORIES and "device" in kwargs and not func(*args, **kwargs).is_floating_point():
            kwargs = kwargs | {"device": _on(torch.device("cpu"), kwargs["device"])}
        return func(*args, **kwargs)

    def _lower(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype is not torch.float32:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(self._autocast)
        if id(tensor) not in self._cast:  # autocast casts a weight once per forward
            self._cast[id(tensor)] = tensor.to(self._autocast)
        return self._cast[id(tensor)]


def _single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _on(device: torch.device, argument: Any) -> Any:
    """`argument`, or `device` if it names a device."""
    named = isinstance(argument, torch.device) or argument in ("meta", "cpu")
    return device if named else argument


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, **_: Any
) -> torch.Tensor:
    return _FusedAttention.apply(query, key, value, attn_mask)


class _FusedAttention(torch.autograd.Function):
    """What a fused attention kernel allocates: the result and a sum per query, never the scores."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any) -> torch.Tensor:
        *batch, heads, tokens, _ = query.shape
        out = query.new_empty(*batch, tokens, heads, value.shape[-1]).transpose(-2, -3)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        if mask is not None:  # added to the scores, in the scores' dtype
            mask = query.new_empty(mask.shape)
        ctx.save_for_backward(query, key, value, out, sums, mask)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None
