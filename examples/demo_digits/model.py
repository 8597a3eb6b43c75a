"""A tiny InternVL checkpoint, random weights, made on the spot: nothing is downloaded."""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import (
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2Config,
    set_seed,
)

from .data import QUESTION

IMAGE_SIZE = 32  # pixels; one image is one tile
PATCH_SIZE = 8  # pixels; 4 x 4 patches
DOWNSAMPLE = 0.5  # pixel shuffle: 4 x 4 patches become 2 x 2 image tokens


def image_tokens(patch_size: int) -> int:
    """Tokens that stand for one image in a prompt."""
    return int((IMAGE_SIZE // patch_size * DOWNSAMPLE) ** 2)


# The names InternVL's processor looks up on its tokenizer.
IMAGE_SPECIALS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif part['type'] == 'video' %}{{ '<video>\n' }}"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tokenizer(text: str = QUESTION) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the demo's own few sentences (about 320 entries)."""
    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    bpe.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *IMAGE_SPECIALS.values()]
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        min_frequency=1,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([f"user\n{text}\nassistant\n0123456789\nsystem\n"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=IMAGE_SPECIALS,
    )


def build_processor(patch_size: int = PATCH_SIZE, text: str = QUESTION) -> InternVLProcessor:
    """Tokenizer, image processor (one 32 x 32 tile per image) and chat template in one object."""
    tile = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    mean_std = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=tile, max_patches=1, **mean_std),
        tokenizer=build_tokenizer(text),
        video_processor=InternVLVideoProcessor(size=tile, **mean_std),
        image_seq_length=image_tokens(patch_size),
        chat_template=CHAT_TEMPLATE,
    )


def build_config(tokenizer: PreTrainedTokenizerFast, patch_size: int = PATCH_SIZE) -> InternVLConfig:
    """A two-layer vision tower and a two-layer Qwen2 decoder, in all about 0.75 M parameters."""
    vision = {
        "image_size": IMAGE_SIZE,
        "patch_size": patch_size,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "layer_scale_init_value": 1.0,
    }
    text = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    return InternVLConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=image_tokens(patch_size),
        downsample_ratio=DOWNSAMPLE,
        tie_word_embeddings=False,
    )


def build_checkpoint(directory: str | Path, seed: int, patch_size: int = PATCH_SIZE) -> Path:
    """Write model, tokenizer and processor files to `directory`, as any checkpoint has them."""
    set_seed(seed)
    processor = build_processor(patch_size)
    model = InternVLForConditionalGeneration(build_config(processor.tokenizer, patch_size))
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    return Path(directory)
