"""A trainer of TRL that lets vLLM answer prompts with images by itself is stopped at its first prompt.

Such a trainer hands the engine ids in which every image is expanded already, together with the images: the
engine expands them again, answers another prompt, and nothing raises.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Trainer


def check_rollout_function(conversations: Sequence[Sequence[Mapping]]) -> None:
    """Refuse to encode prompts with images for a trainer that samples with vLLM and has no rollout function.

    Nothing that a trainer calls on a policy or a processing class says that vLLM will answer, so the trainer
    is looked for among the callers. A callback between them encodes for itself and is let through.

    Args:
        conversations: Normalized conversations.

    Raises:
        ValueError: If the caller is such a trainer. Nothing was sampled or trained then.
    """
    if not any(_has_image(messages) for messages in conversations):
        return
    trainer = _calling_trainer()
    # A trainer that is being made has no `args` yet; of those that have, some know vLLM.
    if not getattr(getattr(trainer, "args", None), "use_vllm", False):
        return
    kind, no_hook = type(trainer).__name__, object()
    rollout = getattr(trainer, "rollout_func", no_hook)
    if rollout is None:
        raise ValueError(
            f"{kind} has use_vllm=True and no rollout function, and a prompt has an image. TRL would send "
            "vLLM the image's tokens expanded, together with the image, and vLLM would expand them again. "
            "Expected rollout_func=vllm_rollout, from hf_vlm_rl.vllm import vllm_rollout; or use_vllm=False."
        )
    if rollout is no_hook:
        raise ValueError(
            f"{kind} has use_vllm=True, and a prompt has an image. It takes no rollout function, so nothing "
            "can send vLLM the right prompts. Expected use_vllm=False, or GRPOTrainer with "
            "rollout_func=vllm_rollout, from hf_vlm_rl.vllm import vllm_rollout."
        )


def _has_image(messages: Sequence[Mapping]) -> bool:
    kinds = ("image", "video")
    return any(block.get("type") in kinds for message in messages for block in message.get("content") or [])


def _calling_trainer() -> "Trainer | None":
    # Where transformers' trainers were not imported, none can call, and importing them takes seconds.
    if "transformers.trainer" not in sys.modules:
        return None
    from transformers import Trainer, TrainerCallback

    frame = inspect.currentframe()
    try:
        while frame is not None:
            caller = frame.f_locals.get("self")
            if isinstance(caller, TrainerCallback):
                return None
            if isinstance(caller, Trainer):
                return caller
            frame = frame.f_back
        return None
    finally:
        del frame  # a frame that refers to itself would keep its locals alive
