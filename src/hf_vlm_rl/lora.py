"""LoRA targets found from the family row, so that the vision tower is never hit by accident."""

import re
from collections.abc import Sequence
from typing import Any

from torch import nn

PARTS = ("language", "language+projector", "all")


def lora_config(policy: Any, r: int = 16, target: str | Sequence[str] = "language", **peft_kwargs):
    """A `peft.LoraConfig` for a policy.

    Args:
        policy: An `AutoVLMPolicy`.
        r: LoRA rank, > 0.
        target: "language": every linear layer of the decoder; "language+projector"; "all": the
            vision tower as well; or module names, as PEFT's `target_modules`. Embeddings and the
            language-model head are never targets of the named parts.
        **peft_kwargs: Further `LoraConfig` fields; `lora_alpha` defaults to 2 * r.

    Returns:
        A config whose targets are full module paths: the same for the bare model.

    Raises:
        ValueError: If `target` names no part, or the part has no linear layer.
    """
    from peft import LoraConfig

    targets = _targets(policy, target) if isinstance(target, str) else list(target)
    defaults = {"r": r, "lora_alpha": 2 * r, "task_type": "CAUSAL_LM"}
    return LoraConfig(target_modules=targets, **defaults | peft_kwargs)


def _targets(policy: Any, target: str) -> list[str]:
    if target not in PARTS:
        raise ValueError(f"Got target={target!r}. Expected one of {PARTS} or a list of module names.")
    family = policy.family
    parts = [family.language]
    if target != "language":
        parts += family.projector
    if target == "all":
        parts.append(family.vision)
    inside = re.compile("|".join(rf"{re.escape(part)}(\.|$)" for part in parts))
    names = [
        name.removesuffix(".base_layer")  # so a layer with an adapter can get another one
        for name, module in policy.named_modules()
        if isinstance(module, nn.Linear) and inside.match(name) and ".lora_" not in name
    ]
    if not names:
        raise ValueError(
            f"No linear layer below {parts} of {type(policy).__name__}. "
            f"Check the module paths of the family {family.model_type!r}."
        )
    return names
