"""The fused LM head of TRL 1.16 scores labelled tokens alone on a CPU, too.

Trainers assign a `forward` to the model that reads the backbone's hidden states and returns log-probs. On a
card it takes the positions with a label; elsewhere it takes all, so that compiled tiles keep their shape, and
a CPU, which compiles none, multiplies each prompt and image token by the whole vocabulary. Here the backbone
hands over the hidden states of labelled positions, and the trainer's own `forward` gets the labels beside
them (`shift_labels`, a keyword of its own for rows that are cut already).

Shapes: B rows, T tokens, n labelled positions, H hidden size.
"""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import MethodType
from typing import Any

import torch

from .._scoped import scoped
from .images.image_tokens import IGNORED

# Which hidden states the backbone of this thread's running forward hands over: (B, T - 1) bool, or all.
_labelled: ContextVar[torch.Tensor | None] = ContextVar("hf_vlm_rl_labelled", default=None)


def of_labelled_tokens(assigned: Callable[..., Any]) -> Callable[..., Any]:
    """A `forward` that a trainer assigns to a policy, which gets labelled positions where it is a fused head.

    Args:
        assigned: The trainer's function, bound to the policy.
    """
    if not isinstance(assigned, MethodType):
        return assigned
    stock = assigned.__func__

    @functools.wraps(stock)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        labels: Any = kwargs.get("labels")
        # A forward that is assigned on top of this one has cut the labels already.
        uncut = kwargs.get("fused_lm_head") and labels is not None and kwargs.get("shift_labels") is None
        if not uncut or labels.device.type != "cpu":
            return stock(self, *args, **kwargs)
        labels = kwargs.pop("labels")[:, 1:]
        mask = labels != IGNORED
        with scoped(_labelled, mask):
            output = stock(self, *args, shift_labels=labels[mask][None], **kwargs)
        for name, value in list(output.items()):
            if isinstance(value, torch.Tensor) and value.ndim == 2:
                # Without any label, this still leads back to the model: a backward gives gradients of 0.
                output[name] = value.new_zeros(mask.shape).masked_scatter(mask, value)
        output.label_mask = mask
        return output

    return MethodType(forward, assigned.__self__)


def hand_over(output: Any) -> Any:
    """A backbone's output whose hidden states (B, T, H) are (1, n, H) where a fused head reads them."""
    if (mask := _labelled.get()) is not None:
        output.last_hidden_state = output.last_hidden_state[:, :-1][mask][None]
    return output
