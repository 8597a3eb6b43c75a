"""Makes trainers comparable in any environment: they get the same adapter and the same completions.

No import of hf_vlm_rl, of TRL or of another project.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.peers.meter import WORDS, same_adapter

LENGTH = 6  # tokens of a completion


def same_start(model: Any) -> None:
    """Draw the weights of an adapter, if there is one, and the words that `generate` seems to sample."""
    adapted = hasattr(model, "get_base_model")  # a PeftModel
    if adapted:
        same_adapter(model)
    base = model.get_base_model() if adapted else model
    base.generate = _same_words(base.generate)


def _same_words(generate: Callable[..., Any]) -> Callable[..., Any]:
    draws = torch.Generator().manual_seed(0)

    @functools.wraps(generate)
    def same(*args: Any, **kwargs: Any) -> Any:
        sampled = generate(*args, **kwargs)
        prompt = kwargs["input_ids"]
        words = torch.randint(*WORDS, (len(prompt), LENGTH), generator=draws)
        ids = torch.cat([prompt, words], dim=1)
        if isinstance(sampled, torch.Tensor):
            return ids
        sampled.sequences = ids
        return sampled

    return same


def reward(text: str) -> float:
    """A number that depends on a text; a tiny random model never gives a right answer."""
    return float(sum(map(ord, text)) % 7)


def is_right(completions: list, **_: Any) -> list[float]:
    """`reward` of conversational completions, as TRL and VLM-R1 pass them."""
    return [reward(completion[0]["content"]) for completion in completions]
