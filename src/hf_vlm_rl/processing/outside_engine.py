"""A trainer of TRL that lets vLLM answer prompts with images by itself is stopped at its first prompt.

Such a trainer hands the engine ids in which every image is expanded already, together with the images: the
engine expands them again, answers another prompt, and nothing raises.
"""

from collections.abc import Mapping, Sequence

from .callers import calling_trainer, server_setting


def check_rollout_function(conversations: Sequence[Sequence[Mapping]]) -> None:
    """Refuse to encode prompts with images for a trainer that samples with vLLM and has no rollout function.

    Nothing that a trainer calls on a policy or a processing class says that vLLM will answer, so the trainer
    is looked for among the callers. A callback between them encodes for itself and is let through.

    Raises:
        ValueError: If the caller is such a trainer, or has its teacher on a server. Nothing was sampled or
            trained then.
    """
    if not any(_has_image(messages) for messages in conversations):
        return
    trainer = calling_trainer()
    server = None if trainer is None else server_setting(trainer)
    if server is None:
        return
    kind, no_hook = type(trainer).__name__, object()
    if server != "use_vllm":
        raise ValueError(
            f"{kind} has {server} set, and a prompt has an image: the teacher's server is sent ids, and no "
            "image. Expected a teacher of its own: DistillationTrainer with teacher_model=another policy."
        )
    # Of the trainers that have vLLM, some have a rollout function.
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
