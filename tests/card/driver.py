"""Puts the pretend card in the place of CUDA's driver: for a process, once and for good.

Without a driver, torch's own guard for pretended CUDA tensors (`_ensureCUDADeviceGuardSet`) says that there
is one device. Autograd asks besides whether it has a context: that function is replaced in the table of
`CUDAHooks`, where the headers that come with torch say at which place it stands.
"""

import atexit
import ctypes
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._device

from .counts import Counts
from .tensors import CARD, CardMode, CardTensor

# Seconds at the end of the process. Autograd's thread for the card lets go of Python's tensors after
# `backward` returned; a thread that asks for the interpreter's lock after its end aborts the process.
_LETTING_GO = 0.5

# Words of the table of functions that are copied; two more stand before it.
_WORDS = 120

_PROPERTIES = SimpleNamespace(
    name="Pretend card",
    major=8,
    minor=0,
    total_memory=80 << 30,
    multi_processor_count=108,
    warp_size=32,
    shared_memory_per_block=49152,
    L2_cache_size=40 << 20,
    gcnArchName="",
)

# What must live as long as the process: torch has addresses in it.
_alive: list[Any] = []


def insert_card() -> Counts:
    """Pretend from here on that there is a card; best before transformers is imported.

    Returns:
        What the process asks of the card from now on.
    """
    if not _alive:
        _replace_hooks()
        torch.utils._device._device_constructors()  # remembers torch.tensor as it is now
        for owner, name, value in [*_driver(), *_accelerator(), *_tensors()]:
            setattr(owner, name, value)
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(x, device="cuda") is a copy to the card
        for kernel in ("flash", "mem_efficient", "cudnn"):  # these ask the driver
            getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(False)
        CardMode().__enter__()
        atexit.register(time.sleep, _LETTING_GO)
    return CardMode.counts


def _replace_hooks() -> None:
    torch._C._ensureCUDADeviceGuardSet()
    folder = Path(torch.__file__).parent
    header = (folder / "include/ATen/detail/AcceleratorHooksInterface.h").read_text()
    names = re.findall(r"virtual [\w:<>]+ ?&?(\w+)\(", header)
    hooks = ctypes.CDLL(str(folder / "lib/libtorch_cpu.so"))._ZN2at6detail12getCUDAHooksEv
    hooks.restype = ctypes.c_void_p
    table = ctypes.c_void_p.from_address(hooks())
    copy = (ctypes.c_void_p * (2 + _WORDS))()
    ctypes.memmove(copy, table.value - 16, ctypes.sizeof(copy))
    no_context = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda this, index: False)
    available = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda this: True)
    for name, function in (("hasPrimaryContext", no_context), ("isAvailable", available)):
        # Behind the two words before the table, it begins with two destructors.
        copy[4 + names.index(name)] = ctypes.cast(function, ctypes.c_void_p).value
    table.value = ctypes.addressof(copy) + 16
    _alive.extend([copy, no_context, available])


class _Stream:
    """A stream or an event: all is done at once, and asking for the end is a wait."""

    device, stream_id, cuda_stream, priority = CARD, 0, 0, 0

    def __init__(self, *_: Any, **__: Any): ...
    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def synchronize(self) -> None:
        CardMode.counts.wait("read")

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def elapsed_time(self, other: Any) -> float:
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        return event or _Stream()

    def __getattr__(self, name: str) -> Any:
        if name not in ("record", "wait", "wait_stream", "wait_event"):
            raise AttributeError(name)
        return _says(None)


def _says(value: Any) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        return value

    return function


def _synchronize(*_: Any) -> None:
    CardMode.counts.wait("read")


def _set_sync_debug_mode(mode: Any) -> None:
    CardMode.counts.warns = mode not in (0, "default")


def _driver() -> Iterator[tuple[Any, str, Any]]:
    """What `torch.cuda` says, and the generators of random numbers, which are the host's."""
    state = torch.zeros(16, dtype=torch.uint8)
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "is_initialized": True,
        "get_device_capability": (8, 0),
        "get_device_name": "Pretend card",
        "get_device_properties": _PROPERTIES,
        "mem_get_info": (80 << 30, 80 << 30),
        "is_bf16_supported": True,
        "is_tf32_supported": True,
        "initial_seed": 0,
        "memory_stats": {},
        "is_current_stream_capturing": False,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "_is_in_bad_fork": False,
        "current_stream": _Stream(),
        "default_stream": _Stream(),
        "get_rng_state": state,
        "get_rng_state_all": [state],
        # Kept memory grows, so that ratios of peaks are numbers.
        **dict.fromkeys(("memory_allocated", "memory_reserved"), 1 << 30),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved"), 2 << 30),
        **dict.fromkeys(
            """
            init _lazy_init _lazy_call set_device empty_cache ipc_collect reset_peak_memory_stats
            reset_max_memory_allocated manual_seed manual_seed_all seed seed_all set_rng_state
            set_rng_state_all
            """.split()  # noqa: SIM905
        ),
    }
    for name, answer in answers.items():
        yield torch.cuda, name, _says(answer)
        if hasattr(torch.cuda.random, name):
            yield torch.cuda.random, name, _says(answer)
    yield torch.cuda, "_initialized", True
    yield torch.cuda, "synchronize", _synchronize
    yield torch.cuda, "set_sync_debug_mode", _set_sync_debug_mode
    yield torch.cuda, "stream", lambda *_: nullcontext()
    yield torch.cuda, "Stream", _Stream
    yield torch.cuda, "Event", _Stream


def _accelerator() -> Iterator[tuple[Any, str, Any]]:
    answers = {
        "is_available": True,
        "current_accelerator": torch.device("cuda"),
        "device_count": 1,
        "current_device_index": 0,
        "current_device_idx": 0,
        "set_device_index": None,
        "set_device_idx": None,
        "current_stream": _Stream(),
        "empty_cache": None,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "memory_stats": {},
        "reset_peak_memory_stats": None,
        "get_memory_info": (80 << 30, 80 << 30),
    }
    for name, answer in answers.items():
        yield torch.accelerator, name, _says(answer)
    yield torch.accelerator, "synchronize", _synchronize


def _tensors() -> Iterator[tuple[Any, str, Any]]:
    """What the C++ of torch does with devices and data without asking an operator."""
    stock_to, stock_data, stock_run = torch.Tensor.to, torch.Tensor.data, threading.Thread.run

    def numbered(value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool)
        names_it = isinstance(value, str | torch.device) and str(value) == "cuda"
        return CARD if whole or names_it else value

    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        args = (numbered(args[0]), *args[1:]) if args else args
        if "device" in kwargs:
            kwargs["device"] = numbered(kwargs["device"])
        return stock_to(tensor, *args, **kwargs)

    def to_cuda(tensor: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return stock_to(tensor, CARD, non_blocking=non_blocking, **kwargs)

    def get_data(tensor: Any) -> Any:
        return CardTensor(tensor.host) if isinstance(tensor, CardTensor) else stock_data.__get__(tensor)

    def set_data(tensor: Any, value: Any) -> None:
        ours = [isinstance(each, CardTensor) for each in (tensor, value)]
        if not any(ours):
            stock_data.__set__(tensor, value)
        elif all(ours) and (tensor.shape, tensor.dtype, tensor.stride()) == (
            value.shape,
            value.dtype,
            value.stride(),
        ):
            tensor.host = value.host
        else:
            new = value.detach()
            if isinstance(tensor, torch.nn.Parameter):
                new = torch.nn.Parameter(new, tensor.requires_grad)
            torch.utils.swap_tensors(tensor, new)

    def read(value: Any) -> Any:
        """Numbers in the place of the card's, which torch reads one by one and below all modes."""
        if isinstance(value, list | tuple):
            return [read(each) for each in value]
        return value.tolist() if isinstance(value, CardTensor) else value

    def reading(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(data: Any, *args: Any, **kwargs: Any) -> Any:
            return make(read(data) if isinstance(data, list | tuple) else data, *args, **kwargs)

        return made

    def run_with_card(thread: Any) -> None:  # modes belong to threads
        torch._C._set_only_lift_cpu_tensors(True)
        with CardMode():
            stock_run(thread)

    attend = torch.nn.functional.scaled_dot_product_attention

    @functools.wraps(attend)
    def attend_in_one(*args: Any, **kwargs: Any) -> Any:
        launched = CardMode.counts.launched
        result = attend(*args, **kwargs)
        if isinstance(result, CardTensor):
            CardMode.counts.launched = launched + 1
        return result

    yield torch.nn.functional, "scaled_dot_product_attention", attend_in_one
    yield torch.Tensor, "to", to
    yield torch.Tensor, "cuda", to_cuda
    yield torch.Tensor, "data", property(get_data, set_data)
    yield torch, "tensor", reading(torch.tensor)
    yield torch, "as_tensor", reading(torch.as_tensor)
    yield threading.Thread, "run", run_with_card
