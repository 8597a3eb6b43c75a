"""`policy.serving`: a front for vLLM servers that reads this policy's tickets and compares log-probs."""

import logging
from collections.abc import Sequence
from typing import Any

import torch

from ..front.agreement import check_close
from ..front.prompts import EnginePrompt
from .ranks import is_sharded
from .scored import logprobs_of

logger = logging.getLogger(__name__)


def compare(
    policy: Any,
    row: int,
    prompt: EnginePrompt,
    completion: Sequence[int],
    sampled: Sequence[float | None],
    temperature: float,
    dtype: str,
    wrapped: Any = None,
) -> None:
    """Compare C log-probs of vLLM, which computes in `dtype`, with those of the policy.

    The trainer that asked waits for the answer meanwhile, so the weights are those that it sent. Sharded
    ones are not asked, and a warning says so; `wrapped` is what a trainer made of the policy to shard it.

    Raises:
        UnsupportedModelError: If they are another model's.
    """
    if is_sharded(policy if wrapped is None else wrapped):
        logger.warning(
            "The policy's weights are spread over ranks: vLLM's log-probs are not compared with it."
        )
        return
    own = logprobs_of(policy, prompt.ids, prompt.carried, completion, temperature)
    in_float32 = dtype.endswith("float32") and policy.dtype is torch.float32
    check_close(row, len(prompt.images), own, sampled, in_float32)
