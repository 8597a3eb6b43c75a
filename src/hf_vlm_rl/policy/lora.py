"""LoRA targets found from the family row, so that the vision tower is never hit by accident."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from .parts import below, part_of, saved_whole

PARTS = ("language", "language+projector", "all")


def lora_config(policy: Any, r: int = 16, target: str | Sequence[str] = "language", **peft_kwargs):
    """A `peft.LoraConfig` for a policy.

    Args:
        policy: An `AutoVLMPolicy`.
        r: LoRA rank, > 0.
        target: "language": every linear layer of the decoder; "language+projector"; "all": the
            vision tower as well; or module names, as PEFT's `target_modules`. Embeddings and the
            language-model head are never targets of the named parts. Fused experts of a
            mixture-of-experts decoder are parameters, not layers: name them in `target_parameters`.
        **peft_kwargs: Further `LoraConfig` fields (`use_dora`, `use_rslora`, ...); `lora_alpha`
            defaults to 2 * r. In `modules_to_save`, "projector" stands for the family's projector,
            which is then trained and saved whole.

    Returns:
        A config whose targets are full module paths: the same for the bare model.

    Raises:
        ValueError: If `target` names no part, the part has no linear layer, or the projector is to
            be saved whole and adapted at once.
    """
    from peft import LoraConfig

    targets = _targets(policy, target) if isinstance(target, str) else list(target)
    if isinstance(saved := peft_kwargs.get("modules_to_save"), Sequence) and "projector" in saved:
        peft_kwargs["modules_to_save"] = saved_whole(policy, saved)
        _check_apart(targets, peft_kwargs["modules_to_save"])
    base = type(policy)
    defaults = {
        "r": r,
        "lora_alpha": 2 * r,
        "task_type": "CAUSAL_LM",
        # Families share decoders, names and shapes: without this, nothing in an adapter tells them apart.
        "auto_mapping": {"base_model_class": base.__name__, "parent_library": base.__module__},
    }
    return LoraConfig(target_modules=targets, **defaults | peft_kwargs)


def _targets(policy: Any, target: str) -> list[str]:
    if target not in PARTS:
        raise ValueError(f"Got target={target!r}. Expected one of {PARTS} or a list of module names.")
    family = policy.family
    parts, chosen = [family.language], ["language"]
    if target != "language":
        parts, chosen = [*parts, *family.projector], [*chosen, "projector"]
    if target == "all":
        parts, chosen = [*parts, *family.vision], [*chosen, "vision"]
    names = [
        name.removesuffix(".base_layer")  # so a layer with an adapter can get another one
        for name, module in policy.named_modules()
        if isinstance(module, nn.Linear)
        and below(name, parts)
        and ".lora_" not in name
        # The tower may lie inside a backbone that is the decoder itself.
        and part_of(name, family) in chosen
    ]
    if not names:
        raise ValueError(
            f"No linear layer below {parts} of {type(policy).__name__}. "
            f"Check the module paths of the family {family.model_type!r}."
        )
    if target == "language+projector" and not any(below(name, family.projector) for name in names):
        raise ValueError(
            f"The projector of {type(policy).__name__} has no linear layer to adapt. Train it whole: "
            'target="language", modules_to_save=["projector"].'
        )
    return names


def _check_apart(targets: Sequence[str], saved: Sequence[str]) -> None:
    both = [name for name in targets if below(name, saved)]
    if both:
        raise ValueError(
            f"Got modules_to_save with the projector and adapters inside it ({both[0]}, ...). It is "
            'trained whole or by adapters: take target="language", or leave it out of modules_to_save.'
        )
