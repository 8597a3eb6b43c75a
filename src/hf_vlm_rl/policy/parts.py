"""The parts of a policy, as its family row names them: vision tower, projector, decoder."""

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from ..families import VLMFamily

Part = Literal["vision", "projector", "language", "other"]
# As people say, in the order in which data passes.
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
    """The part that a parameter belongs to.

    Args:
        name: As in `named_parameters()` of the model, the head excepted.
        family: The model's row.

    Returns:
        "projector" also for what lies beside the parts: LLaVA-NeXT's separator between rows of tiles.
    """
    if below(name, family.projector):  # asked first: Qwen's projector is a part of its tower
        return "projector"
    if below(name, family.vision):
        return "vision"
    if below(name, family.other):
        return "other"
    return "language" if below(name, [family.language]) else "projector"


def freeze(policy: Any, vision: bool, projector: bool, language: bool) -> None:
    """Stop gradients to the chosen parts. What is not chosen stays as it is.

    What belongs to other modalities is always frozen: no image or text reaches it.

    Args:
        policy: An `AutoVLMPolicy`; adapters inside a part belong to it.
        vision: The vision tower.
        projector: The projector.
        language: The decoder, with its embeddings and the language-model head.
    """
    chosen = {"vision": vision, "projector": projector, "language": language, "other": True}
    head = set(map(id, policy.get_output_embeddings().parameters()))
    for name, parameter in policy.named_parameters():
        if chosen["language" if id(parameter) in head else part_of(name, policy.family)]:
            parameter.requires_grad_(False)


def saved_whole(policy: Any, names: Sequence[str]) -> list[str]:
    """PEFT's `modules_to_save`, in which "projector" stands for the family's modules.

    PEFT cannot wrap a list of modules (Qwen3-VL's deep-stack mergers); its items stand for it.
    """
    found: list[str] = []
    for name in names:
        paths = policy.family.projector if name == "projector" else (name,)
        for path in paths:
            module = policy.get_submodule(path) if name == "projector" else None
            if isinstance(module, nn.ModuleList):
                found += [f"{path}.{index}" for index in range(len(module))]
            else:
                found.append(path)
    return found
