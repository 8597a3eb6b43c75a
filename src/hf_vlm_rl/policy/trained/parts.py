"""The parts of a policy, as its family row names them: vision tower, projector, decoder."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from ...compat import CACHE
from ...families import VLMFamily

Part = Literal["vision", "projector", "language", "other"]
# Names for people, in the order in which data passes through the parts.
PART_NAMES: dict[Part, str] = {
    "vision": "vision tower",
    "projector": "projector",
    "language": "decoder",
    "other": "other modalities",
}


def below(name: str, paths: Sequence[str]) -> bool:
    """Whether a module or parameter is one of `paths` or inside one."""
    return any(name == path or name.startswith(path + ".") for path in paths)


def part_of(name: str, family: VLMFamily) -> Part:
    """The part that a parameter belongs to, by its name in `named_parameters()`, the head excepted.

    "projector" also for parameters outside all parts: LLaVA-NeXT's separator between rows of tiles.
    """
    if below(name, family.projector):  # before the tower, because Qwen's projector is inside it
        return "projector"
    if below(name, family.vision):
        return "vision"
    if below(name, family.other):
        return "other"
    return "language" if below(name, [family.language]) else "projector"


def freeze(policy: Any, vision: bool, projector: bool, language: bool) -> None:
    """Stop gradients to the chosen parts; the other parts stay as they are.

    Adapters inside a part belong to it, and to `language` the embeddings and the language-model head. Modules
    of other modalities are always frozen: no image or text reaches them.
    """
    chosen = {"vision": vision, "projector": projector, "language": language, "other": True}
    head = set(map(id, policy.get_output_embeddings().parameters()))
    for name, parameter in policy.named_parameters():
        if chosen["language" if id(parameter) in head else part_of(name, policy.family)]:
            parameter.requires_grad_(False)


def check_trained(policy: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Refuse a forward for training where neither weights nor inputs require a gradient.

    With gradient checkpointing a trainer's backward would raise nothing, and log rewards.
    """
    if not (policy.training and torch.is_grad_enabled()):
        return
    # Prefix tuning learns the keys and values of a cache.
    kept = [value for layer in getattr(kwargs.get(CACHE), "layers", ()) for value in vars(layer).values()]
    inputs = (value for value in (*kwargs.values(), *kept) if isinstance(value, torch.Tensor))
    if not any(tensor.requires_grad for each in (policy.parameters(), inputs) for tensor in each):
        raise ValueError(
            f"The {type(policy).__name__} is in training mode and none of its weights requires a gradient: "
            "it would learn nothing. Load an adapter with trainable=True; after a merge or freeze(), give it "
            "one (peft_config=policy.lora_config()) or call requires_grad_(True). To evaluate, call eval()."
        )


def saved_whole(policy: Any, names: Sequence[str]) -> list[str]:
    """PEFT's `modules_to_save`, in which "projector" stands for the family's modules.

    PEFT cannot wrap a list of modules (Qwen3-VL's deep-stack mergers), so its items are named instead.
    """
    modules: list[str] = []
    for name in names:
        paths = policy.family.projector if name == "projector" else (name,)
        for path in paths:
            module = policy.get_submodule(path) if name == "projector" else None
            if isinstance(module, nn.ModuleList):
                modules += [f"{path}.{index}" for index in range(len(module))]
            else:
                modules.append(path)
    return modules
