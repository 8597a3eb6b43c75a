"""What cannot be done with vLLM is refused before it is asked, and vLLM told the policy's image options.

An image has another number of tokens with another `max_pixels` or number of tiles than the checkpoint's.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..compat import require_trl_with_tools_on_servers, require_vllm_of_trl
from ..errors import ImageError, UnsupportedModelError
from ..front.prompts import EnginePrompt
from ..processing.images.bounds import settings_of
from ..processing.tokenizer import VLMTokenizer


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


def check_tools(trainer: Any, prompts: Sequence[EnginePrompt]) -> None:
    """Refuse tools that TRL cannot run beside a rollout function.

    Raises:
        ImportError: If TRL would ask a server with other rows' conversations.
        ValueError: If a prompt has images.
    """
    if trainer.tools and trainer.vllm_generation.mode == "server":
        require_trl_with_tools_on_servers()
    for row, prompt in enumerate(prompts):
        if prompt.images and trainer.tools:
            raise ValueError(
                f"Row {row} has {len(prompt.images)} images, and the trainer has tools. After a tool's "
                "answer TRL asks vLLM by itself, with images expanded twice. Expected no rollout function "
                "and processing_class=policy.tokenizer, with read_tickets(trainer) or policy.serving: see "
                "docs/vllm.md."
            )


def check_lengths(prompts: Sequence[EnginePrompt], longest: int | None) -> None:
    """Refuse prompts that vLLM has no room for.

    `longest` counts the tokens of prompt and completion that vLLM takes; None: not known.

    Raises:
        ImageError: If a prompt is too long. The message names the row.
    """
    for row, prompt in enumerate(prompts):
        if longest is not None and len(prompt.ids) >= longest:
            raise ImageError(
                f"the prompt has {len(prompt.ids)} tokens, {sum(prompt.lengths)} of images, and vLLM was "
                f"started for {longest} with the completion. Raise vllm_max_model_length (server: "
                "--max-model-len), lower the image processor's max_pixels or tiles, or drop such rows with "
                "hf_vlm_rl.data.filter_overlong.",
                row,
            )


def changed_options(processing: VLMTokenizer, source: str) -> dict[str, Any]:
    """Settings of the policy's image processor that differ from those of the checkpoint that vLLM loads."""
    # By the class that is loaded already: one that came as code is asked for no second time.
    stored = settings_of(type(processing.native_image_processor).from_pretrained(source))
    own = settings_of(processing.image_processor)
    return {name: value for name, value in own.items() if stored.get(name) != value}


def tell_engine(engine: Any, options: dict[str, Any]) -> None:
    """Set `changed_options` in the vLLM of this process (colocate), before it processes the first image."""
    config = engine.llm.llm_engine.model_config.multimodal_config
    if options and config is not None:
        config.mm_processor_kwargs = {**(config.mm_processor_kwargs or {}), **options}


def check_server(engine: Any, options: dict[str, Any]) -> None:
    """Compare `changed_options` with those that a vLLM server was started with; for the main process.

    Raises:
        ValueError: If the server has others. Nothing can set them while it runs.
    """
    model = engine.vllm_client.get_server_info()["model_config"]
    on_server = (model.get("multimodal_config") or {}).get("mm_processor_kwargs") or {}
    missing = {name: value for name, value in options.items() if on_server.get(name) != value}
    if missing:
        raise ValueError(
            f"The policy's image processor has {missing}, the vLLM server {on_server or 'nothing of that'}. "
            "Expected the same options, or images have other tokens. Restart it with --mm-processor-kwargs "
            f"'{json.dumps(options)}'."
        )
