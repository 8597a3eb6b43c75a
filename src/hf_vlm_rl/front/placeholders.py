"""vLLM never samples a placeholder, and its log-probs are those of the whole vocabulary all the same.

A sampled placeholder would be read as an image. A bias on its logit forbids it, and makes the log-probs of
the others those of a smaller vocabulary. The trainer's forward knows no bias, so it is taken out again: from
the log-prob that a biased placeholder still has, the probability follows that it would have had without.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import ImageError, UnsupportedModelError

# The lowest that vLLM takes. As a difference of logits, e^-100 is no probability.
BIAS = -100.0

# vLLM's servers answer -9999 in the place of lower log-probs and of -inf.
NOTHING = -9998.0


def sampling_arguments(placeholder_ids: Sequence[int], sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of vLLM's `SamplingParams` that forbid placeholders and ask for their log-probs.

    A `logit_bias` that the user gives is kept.

    Raises:
        ValueError: If the user asks for several log-probs a token, or `logit_bias` has no numbers.
    """
    if sampling.get("logprobs") or sampling.get("logprob_token_ids"):
        raise ValueError(
            f"generation_kwargs asks vLLM for log-probs: {dict(sampling)}. vllm_rollout asks for those of "
            "the placeholders, and vLLM takes one request. Remove logprobs and logprob_token_ids."
        )
    try:
        bias = {int(token): float(value) for token, value in (sampling.get("logit_bias") or {}).items()}
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"Got logit_bias={sampling['logit_bias']!r}. Expected ids with numbers.") from error
    # A server counts the sampled token among those it was asked for, and leaves the last of these out.
    last = next(token for token in itertools.count() if token not in placeholder_ids)
    asked = [*placeholder_ids, last]
    return {
        **sampling,
        "logit_bias": bias | dict.fromkeys(placeholder_ids, BIAS),
        "logprob_token_ids": asked,
        "logprobs": len(asked),  # vLLM wants both to agree
    }


@contextmanager
def never_sampled(engine: Any, placeholder_ids: Sequence[int]) -> Iterator[None]:
    """Let TRL's `VLLMGeneration` ask vLLM with `sampling_arguments`, for the length of a block."""
    before = engine.generation_kwargs
    engine.generation_kwargs = sampling_arguments(placeholder_ids, before)
    try:
        yield
    finally:
        engine.generation_kwargs = before


def sampled_logprobs(
    completion: Sequence[int],
    logprobs: Sequence[Sequence[float | None]],
    tokens: Sequence[Sequence[int]],
    placeholder_ids: Sequence[int],
    temperature: float,
    row: int,
) -> list[float | None]:
    """Log-probs of a completion's tokens among all tokens, placeholders included.

    Each of C sampled tokens has several log-probs, of the distribution that was sampled from: logits, with
    the bias of `placeholder_ids`, divided by `temperature`. `tokens` says whose they are; the sampled one is
    among them. None where vLLM has no number, as TRL passes it on.

    Raises:
        ImageError: If a placeholder was sampled all the same.
        UnsupportedModelError: If vLLM did not say what it was asked for.
    """
    sampled = []
    for position, (token, values, names) in enumerate(zip(completion, logprobs, tokens, strict=True)):
        if token in placeholder_ids:
            raise ImageError(
                f"vLLM sampled the placeholder {token} as token {position} of a completion, though its logit "
                f"was lowered by {-BIAS:g} (temperature {temperature:g}). Expected none: lower the "
                "temperature, and pass no positive logit_bias for it.",
                row,
            )
        known = dict(zip(names, values, strict=True))
        value = known[token]
        if missing := [each for each in placeholder_ids if each not in known]:
            raise UnsupportedModelError(
                f"Row {row}: vLLM gave no log-probs of the placeholders {missing} beside token {position} "
                "of a completion. Expected all that it was asked for: use vLLM 0.27 or newer, and start "
                "a server with --max-logprobs -1."
            )
        if value is not None and temperature > 0:
            # None and -inf: cut off by top_k, top_p or min_p, and then the ratio is the cut's as well.
            biased = [known[each] for each in placeholder_ids]
            odds = sum(
                math.exp(each - BIAS / temperature) for each in biased if each is not None and each > NOTHING
            )
            value -= math.log1p(odds)
        sampled.append(value)
    return sampled
