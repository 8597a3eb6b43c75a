"""What cannot be done with vLLM is refused before it is asked."""

import sys
from collections.abc import Sequence
from typing import Any

from ..compat import require_vllm_of_trl
from ..errors import ImageError, UnsupportedModelError
from ..processing.tokenizer import VLMTokenizer
from .prompts import EnginePrompt


def check_trainer(trainer: Any) -> None:
    """Refuse a trainer whose rollouts cannot be made right.

    Raises:
        ImportError: If vLLM's version is none of those that TRL works with.
        TypeError: If its processing class is not a policy's.
        ValueError: If it does not use vLLM, or has several environments.
    """
    if not trainer.use_vllm:
        raise ValueError(
            f"{type(trainer).__name__} has use_vllm=False, and vllm_rollout as its rollout function. Set "
            "use_vllm=True, or leave the rollout function out."
        )
    if not isinstance(trainer.processing_class, VLMTokenizer):
        raise TypeError(
            f"Got a processing_class of type {type(trainer.processing_class).__name__}. vllm_rollout expects "
            "that of a policy: processing_class=policy.processing_class."
        )
    engine = sys.modules.get("vllm")  # imported by TRL, and not everywhere installed under this name
    if engine is not None:
        require_vllm_of_trl(engine.__version__)
    if len(trainer.environment_factories or ()) > 1:
        raise ValueError(
            f"Got the environments {list(trainer.environment_factories)}. Each has tools of its own, which "
            "TRL does not tell a rollout function. Train with one environment, or with use_vllm=False."
        )


def check_model(trainer: Any) -> None:
    """Refuse an engine that loaded another kind of model than the policy, which cannot take its weights.

    Raises:
        UnsupportedModelError: If it did: a checkpoint in OpenGVLab's own format, for one.
    """
    loaded = trainer.vllm_generation.llm.llm_engine.model_config.hf_config.model_type
    own = trainer.model.config.model_type
    if loaded != own:
        raise UnsupportedModelError(
            f"vLLM loaded a {loaded} model and the policy is a {own} model. Expected the same, or the "
            "policy's weights have no place. Convert the checkpoint (hf-vlm-rl convert SOURCE TARGET) and "
            "train the result."
        )


def check_prompts(trainer: Any, prompts: Sequence[EnginePrompt], longest: int | None) -> None:
    """Refuse prompts that vLLM has no room for, and images beside tools.

    Args:
        trainer: For its tools.
        prompts: B prompts.
        longest: Tokens that vLLM takes, prompt and completion; None: not known.

    Raises:
        ImageError: If a prompt is too long. The message names the row.
        ValueError: If the trainer has tools and a prompt has images.
    """
    for row, prompt in enumerate(prompts):
        if prompt.images and trainer.tools:
            raise ValueError(
                f"Row {row} has {len(prompt.images)} images, and the trainer has tools. After a tool's "
                "answer TRL asks vLLM by itself, with images expanded twice. Train with tools on text alone, "
                "or with use_vllm=False."
            )
        if longest is not None and len(prompt.ids) >= longest:
            raise ImageError(
                f"the prompt has {len(prompt.ids)} tokens, {sum(prompt.lengths)} of images, and vLLM was "
                f"started for {longest} with the completion. Raise vllm_max_model_length (server: "
                "--max-model-len), lower the image processor's max_pixels or tiles, or drop such rows with "
                "hf_vlm_rl.data.filter_overlong.",
                row,
            )
