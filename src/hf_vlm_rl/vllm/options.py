"""The image options of a policy that a checkpoint does not have, told to the vLLM that loaded the checkpoint.

An image has another number of tokens with another `max_pixels` or number of tiles.
"""

import json
from typing import Any

from ..loading.stock import load_processor
from ..processing.tokenizer import VLMTokenizer

# Who made the settings, not what they are.
NAMES = frozenset({"image_processor_type", "processor_class"})


def changed_options(processing: VLMTokenizer, source: str) -> dict[str, Any]:
    """Settings of the policy's image processor that differ from those of a checkpoint.

    Args:
        processing: The policy's processing class.
        source: Hub id or directory of the checkpoint that vLLM loads.
    """
    stored = load_processor(source, {}).image_processor.to_dict()
    own = processing.image_processor.to_dict()
    return {name: value for name, value in own.items() if name not in NAMES and stored.get(name) != value}


def tell_engine(engine: Any, options: dict[str, Any]) -> None:
    """Set image options in the vLLM of this process, before it processes the first image.

    Args:
        engine: TRL's `VLLMGeneration` in colocate mode.
        options: From `changed_options`.
    """
    config = engine.llm.llm_engine.model_config.multimodal_config
    if options and config is not None:
        config.mm_processor_kwargs = {**(config.mm_processor_kwargs or {}), **options}


def check_server(engine: Any, options: dict[str, Any]) -> None:
    """Compare image options with those that a vLLM server was started with.

    Args:
        engine: TRL's `VLLMGeneration` in server mode, on the main process.
        options: From `changed_options`.

    Raises:
        ValueError: If the server has others. Nothing can set them while it runs.
    """
    model = engine.vllm_client.get_server_info()["model_config"]
    given = (model.get("multimodal_config") or {}).get("mm_processor_kwargs") or {}
    missing = {name: value for name, value in options.items() if given.get(name) != value}
    if missing:
        raise ValueError(
            f"The policy's image processor has {missing}, the vLLM server {given or 'nothing of that'}. "
            "Expected the same options, or images have other tokens. Restart it with --mm-processor-kwargs "
            f"'{json.dumps(options)}'."
        )
