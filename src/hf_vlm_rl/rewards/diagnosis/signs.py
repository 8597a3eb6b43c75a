"""Signs in a trainer's log that a policy learns little, each with what to do."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

SILENT = 0.5  # share of groups with one reward for all completions, above which it is said
UNREAD = 0.5  # share of completions that a reward can read, below which it is said
CERTAIN = 0.1  # entropy in nats a token, below which it is said
SILENT_GROUPS = "frac_reward_zero_std"  # as GRPO and RLOO log it
_PARSE_RATE = re.compile(r"(?!eval_)(.+)/parse_rate")


def signs_of(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What is wrong in a part of `trainer.state.log_history`: name of a logged figure to a sentence."""
    entries = list(entries)
    signs = {}
    silent = _mean(entries, SILENT_GROUPS)
    if silent is not None and silent > SILENT:
        signs[SILENT_GROUPS] = (
            f"{silent:.0%} of the groups had one reward for all completions: they gave no gradient. Drop "
            "prompts that the policy always gets right or never, raise temperature or num_generations, or "
            "give partial credit."
        )
    entropy = _mean(entries, "entropy")
    if entropy is not None and entropy < CERTAIN:
        signs["entropy"] = (
            f"the entropy was {entropy:.2f} nats a token: completions of one prompt are nearly the same. "
            "Raise the temperature, or start from a shorter warm start."
        )
    names = {match[1] for entry in entries for match in map(_PARSE_RATE.fullmatch, entry) if match}
    for name in sorted(names):
        rate = _mean(entries, f"{name}/parse_rate")
        if rate is not None and rate < UNREAD:
            signs[f"{name}/parse_rate"] = (
                f"{name} could read {rate:.0%} of the completions: its low values are about form. Say the "
                "form in the prompt, or warm up with SFT."
            )
    return signs


def _mean(entries: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Mean of what was logged, None where nothing was."""
    values = [entry[key] for entry in entries if entry.get(key) is not None]
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else None
