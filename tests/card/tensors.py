"""Tensors whose device is a card that is not there, and the operators on them.

`CardTensor` is a wrapper whose C++ device is cuda:0: autocast, the threads of autograd and `tensor.device`
take it for a tensor of a card. It holds a tensor of the host, on which operators compute. Mixing tensors of
host and card raises what CUDA raises, and each operator for which the host would wait is counted.
"""

import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from .counts import Counts

aten = torch.ops.aten
CARD, HOST = torch.device("cuda", 0), torch.device("cpu")

# Of non-blocking uploads of pageable memory, the driver copies so many bytes at once; for more, it waits.
STAGED = 64 << 10

# Operators of which the card decides the shape of the result.
_SIZES = frozenset(
    """
    nonzero argwhere nonzero_numpy masked_select bincount _unique _unique2 unique_dim unique_consecutive
    unique_dim_consecutive
    """.split()  # noqa: SIM905
)

# Operators that CUDA has for floating-point numbers only.
_FLOATS_ONLY = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution"})

# Operators besides pointwise ones that take a number of the host, as a tensor without dimensions.
_TAKE_NUMBERS = frozenset(
    """
    masked_fill masked_fill_ fill fill_ index_fill index_fill_ full full_like where clamp clamp_min clamp_max
    lerp lerp_ arange linspace scalar_tensor rsub _local_scalar_dense _fused_adamw_ _fused_adam_
    """.split()  # noqa: SIM905
)

_INDEXING = frozenset(
    {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
)

# Storages of pinned memory: by the address of each, a reference that ends with it.
_pinned: dict[int, weakref.ref] = {}


class CardTensor(torch.Tensor):
    """Says cuda:0 and holds `host`, a CPU tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor, requires_grad: bool = False) -> "CardTensor":
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device=CARD,
            requires_grad=requires_grad,
        )
        self.host = host
        return self

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["host"], None

    @staticmethod
    def __tensor_unflatten__(inner: Mapping[str, Any], meta: Any, size: Any, stride: Any) -> "CardTensor":
        return CardTensor(inner["host"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def untyped_storage(self) -> Any:
        return self.host.untyped_storage()

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def __repr__(self, **_: Any) -> str:
        return f"card({self.host!r})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __deepcopy__(self, memo: dict) -> "CardTensor":
        if id(self) not in memo:
            copy = memo[id(self)] = CardTensor(self.host.clone(), self.requires_grad)
            copy.__dict__.update({name: value for name, value in vars(self).items() if name != "host"})
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:  # what is saved comes back on the host
        return self.host.__reduce_ex__(protocol)


class CardMode(TorchDispatchMode):
    """Sees what no `CardTensor` takes part in: new tensors of the card, and copies to it.

    Attributes:
        counts: Those of the card; None before there is one.
    """

    counts: Counts = Counts()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator on tensors of which some may be the card's."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    on_card = any(isinstance(each, CardTensor) for each in tensors)
    device = kwargs.get("device")
    to_card = device is not None and torch.device(device).type == "cuda"
    if func is aten.is_pinned.default:
        return not on_card and _is_pinned(args[0])
    if func is aten._pin_memory.default:
        return _pin(args[0].clone())
    if not on_card and not to_card:
        if kwargs.get("pin_memory"):
            return _pin(func(*args, **kwargs | {"pin_memory": False}))
        return func(*args, **kwargs)
    if torch.is_inference_mode_enabled() and func._can_decompose():  # without autograd, composites come whole
        with CardMode():
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
    operator = _operator(func)
    if device is not None:
        kwargs = kwargs | {"device": HOST if to_card else device}
    result_on_card = on_card if device is None else to_card
    _check(operator, args, kwargs, tensors, on_card, result_on_card)
    if not operator.is_view:
        CardMode.counts.launch()
    host_args, host_kwargs = pytree.tree_map(_host, (args, kwargs))
    result = func(*host_args, **host_kwargs)
    if operator.changes_shape:
        with no_dispatch():
            func(*args, **kwargs)
    if operator.name == "copy_":
        return args[0]
    if operator.is_view and torch.is_inference_mode_enabled() and not any(t.is_inference() for t in tensors):
        with torch.inference_mode(False):  # the view of an ordinary tensor is one
            return pytree.tree_map(_on_card, result)
    wrap = _on_card if result_on_card else lambda value: value
    if len(operator.returned) == 1:
        place = operator.returned[0]
        return pytree.tree_map(wrap, result) if place is None else _argument(args, kwargs, place)
    return (
        tuple(
            pytree.tree_map(wrap, each) if place is None else _argument(args, kwargs, place)
            for place, each in zip(operator.returned, result or (), strict=True)
        )
        or None
    )


class Operator:
    """What the schema of an operator says.

    Attributes:
        name: Without namespace and overload.
        written: Places of the arguments that are changed: (position, name).
        returned: For each result, the place of the argument that it is; None for a new tensor.
        is_view: Whether results share the memory of an argument.
        is_pointwise: Whether it takes numbers of the host.
        changes_shape: Whether an argument has another shape afterwards.
    """

    def __init__(self, func: Any):
        schema = func._schema
        self.name = schema.name.split("::")[1]
        places = {}
        for number, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                places.update(dict.fromkeys(argument.alias_info.before_set, (number, argument.name)))
        self.written = list(places.values())
        aliases = [result.alias_info for result in schema.returns]
        self.returned = [
            places.get(next(iter(alias.before_set), None)) if alias is not None and alias.is_write else None
            for alias in aliases
        ]
        self.is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.is_pointwise = torch.Tag.pointwise in func.tags or self.name.startswith("_foreach")
        self.changes_shape = torch.Tag.inplace_view in func.tags or self.name in ("resize_", "set_")


_operator = functools.cache(Operator)


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], place: tuple[int, str]) -> Any:
    return args[place[0]] if place[0] < len(args) else kwargs.get(place[1])


def _host(value: Any) -> Any:
    return value.host if isinstance(value, CardTensor) else value


def _on_card(value: Any) -> Any:
    return CardTensor(value) if isinstance(value, torch.Tensor) else value


def _check(
    operator: Operator,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tensors: Sequence[torch.Tensor],
    on_card: bool,
    result_on_card: bool,
) -> None:
    """Raise what CUDA would raise, and count a wait of the host."""
    name, wait = operator.name, CardMode.counts.wait
    if name in ("_to_copy", "copy_"):
        _check_copy(name, args, kwargs, on_card, result_on_card)
        return
    if name in _INDEXING:
        _check_index(name, args[0], args[1], args[2] if len(args) > 2 and "put" in name else None)
        return
    hosts = [each for each in tensors if not isinstance(each, CardTensor)]
    if hosts and on_card:
        target = _argument(args, kwargs, operator.written[0]) if operator.written else None
        to_host = isinstance(target, torch.Tensor) and not isinstance(target, CardTensor)
        takes_numbers = operator.is_pointwise or name in _TAKE_NUMBERS
        if to_host or not takes_numbers or any(each.dim() for each in hosts):
            raise _mixed(name, tensors)
    if not on_card:
        return
    if name == "_local_scalar_dense":
        wait("read")
    elif name == "equal":
        wait("compare")
    elif name in _SIZES or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        wait("size")
    elif name in _FLOATS_ONLY and not (tensors[0].is_floating_point() or tensors[0].is_complex()):
        raise RuntimeError(f'"{name}_cuda" not implemented for {tensors[0].dtype}')


def _check_copy(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], on_card: bool, result_on_card: bool
) -> None:
    source, non_blocking = args[-1] if name == "_to_copy" else args[1], bool(kwargs.get("non_blocking"))
    from_card, to_card = on_card, result_on_card
    if name == "copy_":
        non_blocking = bool(args[2] if len(args) > 2 else non_blocking)
        from_card, to_card = isinstance(source, CardTensor), isinstance(args[0], CardTensor)
    if source.numel() == 0 or from_card == to_card:
        return
    if from_card and not non_blocking:
        CardMode.counts.wait("download")
    elif to_card and not (non_blocking and (_is_pinned(source) or source.nbytes <= STAGED)):
        CardMode.counts.wait("upload")


def _check_index(name: str, tensor: Any, indices: Sequence[Any], values: Any) -> None:
    indices = [each for each in indices if each is not None]
    if not isinstance(tensor, CardTensor):
        raise _mixed(name, [tensor, *indices])
    one_value = values is not None and values.numel() == 1
    if values is not None and not isinstance(values, CardTensor) and values.dim() and not one_value:
        raise _mixed(name, [tensor, *indices, values])
    # One mask and one value make a `masked_fill`; the value is the host's, or CUDA reads it.
    fills = len(indices) == 1 and one_value and not isinstance(values, CardTensor)
    for index in indices:
        if not isinstance(index, CardTensor):
            CardMode.counts.wait("upload")
        elif index.dtype in (torch.bool, torch.uint8) and not fills:
            CardMode.counts.wait("size")


def _mixed(name: str, tensors: Sequence[torch.Tensor]) -> RuntimeError:
    kinds = ", ".join(f"{each.device} {tuple(each.shape)}" for each in tensors)
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        f"({name}: {kinds})"
    )


def _pin(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    _pinned[storage._cdata] = weakref.ref(storage)
    return tensor


def _is_pinned(tensor: torch.Tensor) -> bool:
    storage = _pinned.get(tensor.untyped_storage()._cdata)
    return storage is not None and storage() is not None
