"""Whether vLLM computes what the policy computes: log-probs of one completion, by both.

Equal prompts do not make equal models: an engine may implement a class otherwise than transformers does, or
not have got the weights that were trained since.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UnsupportedModelError

# Mean difference of log-probs: rounding to bfloat16 makes hundredths, another prompt or model 1 and more.
MOST = 0.3

# The same where both compute in float32, whose rounding makes millionths.
MOST_FLOAT32 = 1e-3

# Sampling settings, each with its default and the values that cut off and penalize nothing.
UNCUT: dict[str, tuple[Any, tuple]] = {
    "top_p": (1.0, (1.0,)),
    "top_k": (0, (0, -1, None)),
    "min_p": (0.0, (0.0, None)),
    "repetition_penalty": (1.0, (1.0,)),
}
# What changes no distribution, or what the package itself asks for and takes out again.
BESIDE = {
    *("ignore_eos", "include_stop_str_in_output", "logprob_token_ids", "logprobs", "max_tokens", "n"),
    *("prompt_logprobs", "seed", "skip_special_tokens", "stop", "stop_token_ids", "temperature"),
}


def is_uncut(sampling: Mapping[str, Any], placeholder_ids: Sequence[int] = ()) -> bool:
    """Whether these arguments of vLLM's `SamplingParams` sample from the policy's own distribution.

    A bias of `placeholder_ids` is taken out of the log-probs again.
    """
    biased = {int(token) for token in sampling.get("logit_bias") or {}} - set(placeholder_ids)
    known = all(sampling.get(name, usual) in values for name, (usual, values) in UNCUT.items())
    others = set(sampling) - set(UNCUT) - BESIDE - {"logit_bias"}
    return known and not others and not biased and sampling.get("temperature", 1.0) > 0


def check_close(
    row: int, images: int, own: Sequence[float], sampled: Sequence[float | None], in_float32: bool
) -> None:
    """Compare C log-probs of a policy (`own`) with those that vLLM gave (`sampled`), where it gave one.

    Raises:
        UnsupportedModelError: If they are another model's, or another prompt's.
    """
    pairs = [(ours, theirs) for ours, theirs in zip(own, sampled, strict=True) if theirs is not None]
    if not pairs:
        return
    difference = sum(abs(ours - theirs) for ours, theirs in pairs) / len(pairs)
    most = MOST_FLOAT32 if in_float32 else MOST
    if not difference <= most:  # nan is none either
        raise UnsupportedModelError(
            f"Row {row}: vLLM's log-probs differ by {difference:.2g} a token from those of the policy, for "
            f"the same prompt with {images} images. Expected less than {most}: vLLM computes another model. "
            "Update vLLM, or set use_vllm=False; docs/vllm.md says which families were run. If earlier "
            "rollouts agreed, vLLM did not get the weights of the last update."
        )
