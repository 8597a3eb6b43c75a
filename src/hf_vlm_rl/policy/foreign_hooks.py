"""Hooks that somebody else put on the modules of a model.

What is computed once instead of often runs fewer modules, or on other shapes. A hook that watches or
changes what a module computes would not see what it expects.
"""

from torch import nn

# Modules whose hooks change no value: gradient checkpointing, sharding, placement.
HARMLESS = ("accelerate.", "deepspeed.", "peft.peft_model", "peft.utils.", "torch.", "transformers.")


def foreign_hook(module: nn.Module) -> str | None:
    """Where a hook on `module` or inside it comes from, if it may watch or change values; else None."""
    for part in module.modules():
        # torch has no public way to list hooks.
        hooks = (part._forward_hooks, part._forward_pre_hooks)
        for hook in (hook for registered in hooks if registered for hook in registered.values()):
            function = getattr(hook, "func", hook)  # a functools.partial keeps its function there
            home = getattr(function, "__module__", None) or type(function).__module__  # a callable object
            if not home.startswith(HARMLESS):
                return home
    return None
