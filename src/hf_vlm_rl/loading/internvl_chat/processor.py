"""The native processor: transformers' `InternVLProcessor`, set up as the checkpoint was trained."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from transformers import GotOcr2ImageProcessorPil, InternVLProcessor, InternVLVideoProcessor

from ...processing.images.bounds import MOST_TILES
from .config import chat_options, tile_size, tokens_per_tile
from .files import Files
from .templates import conversation_for
from .tokenizer import make_tokenizer

# ImageNet's. The original code has them built in; preprocessor_config.json belongs to another processor.
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class TilesOnly(GotOcr2ImageProcessorPil):
    """For checkpoints with `use_thumbnail: false`; transformers' class always adds the thumbnail."""

    def crop_image_to_patches(self, *args: Any, **kwargs: Any) -> list[np.ndarray]:
        """The tiles, without a view of the whole image."""
        return super().crop_image_to_patches(*args, **kwargs | {"use_thumbnail": False})

    def get_number_of_image_patches(self, *args: Any, **kwargs: Any) -> int:
        """Number of tiles of an image."""
        count = super().get_number_of_image_patches(*args, **kwargs)
        return count - 1 if count > 1 else count


def make_processor(files: Files, stored: Mapping[str, Any]) -> InternVLProcessor:
    """Build the processor.

    Raises:
        CheckpointError: If a file of the tokenizer is missing or damaged.
        UnsupportedModelError: If the template or the tokenizer's class is unknown.
        ValueError: If fewer tiles are allowed than needed.
    """
    chat = chat_options(stored)
    conversation = conversation_for(chat["template"], files.source)
    side = tile_size(stored)
    tokenizer = make_tokenizer(files, conversation, stored["llm_config"]["vocab_size"])
    # An empty text is the special tokens that the tokenizer adds to every text.
    bos = tokenizer.bos_token if tokenizer("").input_ids == [tokenizer.bos_token_id] else ""
    pixels: dict[str, Any] = {"size": {"height": side, "width": side}, "image_mean": MEAN, "image_std": STD}
    return InternVLProcessor(
        _image_processor(chat, pixels),
        tokenizer,
        InternVLVideoProcessor(**pixels),
        image_seq_length=tokens_per_tile(stored),
        chat_template=conversation.jinja(chat["system_message"], bos),
    )


def _image_processor(chat: Mapping[str, Any], pixels: Mapping[str, Any]) -> GotOcr2ImageProcessorPil:
    # InternVLProcessor always asks for tiles: only a limit of one keeps an image whole.
    dynamic = chat["dynamic_image_size"]
    tiles: dict[str, Any] = {
        "crop_to_patches": True,
        "min_patches": chat["min_dynamic_patch"] if dynamic else 1,
        "max_patches": chat["max_dynamic_patch"] if dynamic else 1,
    }
    if not 1 <= tiles["min_patches"] <= tiles["max_patches"] <= MOST_TILES:
        raise ValueError(
            f"Got min_tiles={tiles['min_patches']} and max_tiles={tiles['max_patches']} (from "
            f"min/max_dynamic_patch of config.json). Expected 1 <= min_tiles <= max_tiles <= {MOST_TILES}."
        )
    kind = GotOcr2ImageProcessorPil if chat["use_thumbnail"] else TilesOnly
    # Pillow's resampling is the original's; torchvision's differs by up to two of 255 steps.
    return kind(**pixels, **tiles)
