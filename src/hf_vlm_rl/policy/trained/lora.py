"""LoRA targets from the family row, so that no adapter lands in the vision tower by accident."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from .experts import fused_experts, kinds, routers, shape
from .fingerprint import fingerprint
from .parts import below, part_of, saved_whole

if TYPE_CHECKING:
    from peft import LoraConfig

PARTS = ("language", "language+projector", "all")

# Options that PEFT lacks where it adapts a layer's weight as a parameter.
ONLY_ON_LAYERS = ("lora_bias", "lora_dropout", "use_dora")

LEFT = (
    "{weights:,} weights of experts, in {number} fused parameters ({kinds}), get no adapter: these are no "
    "layers. experts=True adapts them, experts=False says that they stay as they are."
)
UNREACHED = (
    "{number} linear layers ({kinds}) get no adapter: PEFT takes their names for those of experts in "
    "checkpoints of transformers 4. As parameters it adapts their weights where these are not quantised, and "
    "without {options}."
)
REPLACED = (
    "PEFT takes {kinds} for experts of a checkpoint of transformers 4 and adapts {instead} in their place: "
    "linear layers of these names get no adapter."
)


def lora_config(
    policy: Any,
    r: int = 16,
    target: str | Sequence[str] = "language",
    experts: bool | None = None,
    **peft_kwargs: Any,
) -> "LoraConfig":
    """A `peft.LoraConfig` for a policy.

    Args:
        policy: An `AutoVLMPolicy`.
        r: LoRA rank, > 0.
        target: "language": every linear layer of the decoder; "language+projector"; "all": the
            vision tower as well; or module names, as PEFT's `target_modules`. Embeddings, the
            language-model head and the routers of experts are never targets of the named parts.
        experts: Fused experts of a mixture-of-experts decoder are parameters, not layers. True: adapt them
            too, each expert with rank r, by PEFT's `target_parameters`; False: leave them as they are; None:
            leave them, and warn.
        **peft_kwargs: Further `LoraConfig` fields (`use_dora`, `use_rslora`, ...); `lora_alpha`
            defaults to 2 * r. In `modules_to_save`, "projector" stands for the family's projector,
            which is then trained and saved whole.

    Returns:
        A config whose targets are full module paths, which the bare model has, too.

    Raises:
        ValueError: If `target` names no part, the part has no linear layer, the projector is both in
            `modules_to_save` and a target, or `experts` is True and there are no fused experts.

    Warns:
        UserWarning: If fused experts get no adapter and `experts` is None, or PEFT would adapt something else
            in place of a target.
    """
    from peft import LoraConfig

    layers = _targets(policy, target) if isinstance(target, str) else list(target)
    if isinstance(saved := peft_kwargs.get("modules_to_save"), Sequence) and "projector" in saved:
        peft_kwargs["modules_to_save"] = saved_whole(policy, saved)
        _check_apart(layers, peft_kwargs["modules_to_save"])
    parameters = list(peft_kwargs.pop("target_parameters", None) or ())
    replaced, instead = _replaced_by_peft(policy, layers)
    if replaced and isinstance(target, str):
        layers, instead = [layer for layer in layers if layer not in replaced], set()
        if _may_be_parameters(policy, replaced, peft_kwargs):
            parameters += [f"{layer}.weight" for layer in replaced]
        else:
            options = ", ".join(ONLY_ON_LAYERS)
            message = UNREACHED.format(number=len(replaced), kinds=kinds(replaced), options=options)
            warnings.warn(message, stacklevel=3)
    elif replaced:
        message = REPLACED.format(kinds=kinds(replaced), instead=" and ".join(sorted(instead)))
        warnings.warn(message, stacklevel=3)
    parameters += _experts(policy, experts, {*parameters, *instead})
    base = type(policy)
    defaults: dict[str, Any] = {
        "r": r,
        "lora_alpha": 2 * r,
        "task_type": "CAUSAL_LM",
        # Families share decoders, names and shapes: without this, nothing in an adapter tells them apart.
        "auto_mapping": {
            "base_model_class": base.__name__,
            "parent_library": base.__module__,
            **fingerprint(policy),
        },
    }
    return LoraConfig(target_modules=layers, target_parameters=parameters or None, **defaults | peft_kwargs)


def _targets(policy: Any, target: str) -> list[str]:
    if target not in PARTS:
        raise ValueError(f"Got target={target!r}. Expected one of {PARTS} or a list of module names.")
    family = policy.family
    parts, chosen = [family.language], ["language"]
    if target != "language":
        parts, chosen = [*parts, *family.projector], [*chosen, "projector"]
    if target == "all":
        parts, chosen = [*parts, *family.vision], [*chosen, "vision"]
    left_out = routers(policy, family.language) | _read_by_attention(policy)
    head = policy.get_output_embeddings()  # may be below the decoder's path, in a whole language model
    names = [
        name.removesuffix(".base_layer")  # so a layer with an adapter can get another one
        for name, module in policy.named_modules()
        if isinstance(module, nn.Linear)
        and below(name, parts)
        and ".lora_" not in name
        and module is not head
        # The tower may lie inside a backbone that is the decoder itself.
        and part_of(name, family) in chosen
    ]
    names = [name for name in names if name not in left_out]
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


def _read_by_attention(policy: Any) -> set[str]:
    """The linear layers that torch's attention never calls: it reads their weights and no adapter's."""
    attention = (name for name, module in policy.named_modules() if isinstance(module, nn.MultiheadAttention))
    return {f"{name}.out_proj" for name in attention}


def _experts(policy: Any, experts: bool | None, targeted: Collection[str]) -> list[str]:
    """Names of fused experts to adapt, without those that PEFT finds by the `targeted` names already."""
    fused = fused_experts(policy, policy.family.language)
    others = {
        name: weight
        for name, weight in fused.items()
        if not any(name == target or name.endswith(f".{target}") for target in targeted)
    }
    if experts and not fused:
        raise ValueError(f"Got experts=True. The decoder of {type(policy).__name__} has no fused experts.")
    if experts is None and others:
        weights = sum(shape(weight).numel() for weight in others.values())
        warnings.warn(LEFT.format(weights=weights, number=len(others), kinds=kinds(others)), stacklevel=4)
    return list(others) if experts else []


def _replaced_by_peft(policy: Any, layers: Sequence[str]) -> tuple[list[str], set[str]]:
    """The targets that PEFT replaces by parameters of fused experts, and the names of these parameters.

    PEFT does so for adapters that were trained with transformers 4, where experts were layers. It compares
    names alone, and dense layers and shared experts have the same names.
    """
    from peft import LoraConfig

    try:
        from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
    except ImportError:  # PEFT has this since it knows transformers 5
        return [], set()
    trial = LoraConfig(target_modules=list(layers))
    convert_peft_config_for_transformers(trial, policy, None)
    targets = set(trial.target_modules or ())
    return [layer for layer in layers if layer not in targets], set(trial.target_parameters or ())


def _may_be_parameters(policy: Any, layers: Sequence[str], peft_kwargs: Mapping[str, Any]) -> bool:
    """Whether LoRA on the weights of `layers` is the same as on the layers themselves."""
    weights = (policy.get_submodule(layer).weight for layer in layers)
    plain = not any(peft_kwargs.get(option) for option in ONLY_ON_LAYERS)
    return plain and all(weight.is_floating_point() for weight in weights)


def _check_apart(targets: Sequence[str], saved: Sequence[str]) -> None:
    both = [name for name in targets if below(name, saved)]
    if both:
        raise ValueError(
            f"Got modules_to_save with the projector and adapters inside it ({both[0]}, ...). It is "
            'trained whole or by adapters: take target="language", or leave it out of modules_to_save.'
        )
