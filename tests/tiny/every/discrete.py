"""Classes whose images become words of a codebook, or that also draw images with one."""

from tests.tiny.every.parts import square

from .outline import Id, Outline

_CODES = 64


def _chameleon_code(number: int) -> str:
    """Chameleon's name of a code: its digits as letters."""
    letters = "".join(chr(ord("A") + int(digit)) for digit in str(number))
    return f"IMGIMG{letters}Z"


def _emu_code(number: int) -> str:
    return f"<|visual token {number:06d}|>"


_CHAMELEON_CODES = tuple(_chameleon_code(number) for number in range(_CODES))
_EMU_CODES = tuple(_emu_code(number) for number in range(_CODES))

OUTLINES: dict[str, Outline] = {
    "chameleon": Outline(
        {"image": "<image>", "boi": "<racm3:break>", "eoi": "<eoss>", "sep": "<reserved08706>"},
        more_words=_CHAMELEON_CODES,
        options={"image_seq_length": 16},
        image_options={"size": {"shortest_edge": 64}, "crop_size": square(64)},
        config={
            "num_key_value_heads": 4,
            "vocabulary_map": {word: Id(word) for word in ("<image>", *_CHAMELEON_CODES)},
            "vq_config": {
                "num_embeddings": _CODES,
                "resolution": 64,
                "base_channels": 32,
                "channel_multiplier": [1, 1, 1, 1, 1],
                "num_res_blocks": 1,
                "embed_dim": 16,
                "latent_channels": 16,
            },
        },
    ),
    "emu3": Outline(
        {
            "image": "<image>",
            "bos": "<|extra_203|>",
            "boi": "<|image start|>",
            "eoi": "<|image end|>",
            "image_wrapper": "<|image token|>",
            "eof": "<|extra_201|>",
        },
        more_words=("<|extra_200|>", *_EMU_CODES),
        image_options={"min_pixels": 32**2, "max_pixels": 64**2},
        config={
            "vocabulary_map": {word: Id(word) for word in ("<image>", "<|extra_200|>", *_EMU_CODES)},
            "text_config": {"attention_dropout": 0.0},
            "vq_config": {
                "codebook_size": _CODES,
                "base_channels": 32,
                "channel_multiplier": [1, 1, 1, 1],
                "num_res_blocks": 1,
                "temporal_downsample_factor": 2,
            },
        },
    ),
    "janus": Outline(
        {"image": "<image_placeholder>", "boi": "<begin_of_image>", "eoi": "<end_of_image>"},
        options={"num_image_tokens": 16},
        image_options={"size": square(64)},
        config={
            "vision_config": {
                "image_size": 64,
                "patch_size": 16,
                "projection_dim": 64,
                "num_image_tokens": 16,
            },
            "vq_config": {
                "base_channels": 32,
                "channel_multiplier": [1, 1],
                "num_res_blocks": 1,
                "latent_channels": 32,
                "num_embeddings": _CODES,
                "projection_dim": 64,
                "image_token_embed_dim": 64,
                "num_patches": 32,
            },
        },
    ),
}
