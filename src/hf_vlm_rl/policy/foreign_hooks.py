"""Hooks that somebody else put on the modules of a model.

A fast path calls modules less often, or with tensors of other shapes. A hook that watches or changes a
module's values would not get the calls that its author expects.
"""

from typing import Any

from torch import nn
from torch.nn.modules import module as hooks_of_all

# Python modules whose hooks change no value: they checkpoint, shard or place. NEFTune's hook, elsewhere in
# transformers.integrations, adds noise.
HARMLESS = (
    "accelerate.",
    "deepspeed.",
    "peft.peft_model",
    "peft.utils.",
    "torch.",
    "transformers.integrations.accelerate",
    "transformers.integrations.tensor_parallel",
    "transformers.modeling_utils",
    "transformers.utils.",
)


def foreign_hook(module: nn.Module) -> str | None:
    """The origin of a hook that may change values, on `module`, inside it or on all modules; or None."""
    # torch has no public way to list hooks.
    registered = [hooks_of_all._global_forward_hooks, hooks_of_all._global_forward_pre_hooks]
    for part in module.modules():
        registered += [part._forward_hooks, part._forward_pre_hooks]
    return next((home for hooks in registered for hook in hooks.values() if (home := _foreign(hook))), None)


def foreign_forward(module: nn.Module) -> str | None:
    """The origin of a forward that replaces the class's own on `module` or inside it; or None."""
    forwards = (vars(part).get("forward") for part in module.modules())
    return next((home for forward in forwards if forward is not None and (home := _foreign(forward))), None)


def _foreign(function: Any) -> str | None:
    """The Python module that a hook or forward comes from; None if it is one that changes no value."""
    function = getattr(function, "func", function)  # a functools.partial keeps its function there
    home = getattr(function, "__module__", None) or type(function).__module__  # a callable object
    return None if home.startswith(HARMLESS) else home
