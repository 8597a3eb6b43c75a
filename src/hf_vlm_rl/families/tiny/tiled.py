"""InternVL, Idefics3 and SmolVLM: an image is cut into square tiles plus a view of the whole."""

from transformers import (
    GotOcr2ImageProcessor,
    Idefics3Config,
    Idefics3ImageProcessor,
    Idefics3Processor,
    InternVLConfig,
    InternVLProcessor,
    InternVLVideoProcessor,
    SmolVLMConfig,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

from . import templates
from .parts import CHATML, Recipe, ids, square, text_config, vision_config
from .tokens import byte_tokenizer, qwen_tokenizer

# A tile of 112 pixels is 8x8 patches, merged two by two into 16 tokens.
_TILE, _TILE_TOKENS = 112, 16
_IDEFICS = (
    "<fake_token_around_image>",
    "<image>",
    "<end_of_utterance>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
)


def internvl() -> Recipe:
    """InternVL: up to six tiles of 16 tokens each."""
    tokenizer = qwen_tokenizer(
        (*CHATML, "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    processor = InternVLProcessor(
        GotOcr2ImageProcessor(size=square(_TILE), crop_to_patches=True, min_patches=1, max_patches=6),
        tokenizer,
        InternVLVideoProcessor(size=square(_TILE)),
        image_seq_length=_TILE_TOKENS,
        chat_template=templates.INTERNVL,
    )
    (image,) = ids(tokenizer, "<IMG_CONTEXT>")
    config = InternVLConfig(
        text_config=text_config(tokenizer, model_type="qwen2"),
        vision_config=vision_config(_TILE, attention_bias=True),
        image_token_id=image,
        image_seq_length=_TILE_TOKENS,
        downsample_ratio=0.5,
        tie_word_embeddings=False,
    )
    return Recipe(config, processor, ids(tokenizer, "<|im_end|>"))


def idefics3() -> Recipe:
    """Idefics3: tiles in rows and columns that the text names."""
    tokenizer = byte_tokenizer(
        ("<|begin_of_text|>", "<|end_of_text|>", "<|pad|>", *_IDEFICS),
        {},
        bos_token="<|begin_of_text|>",
        eos_token="<end_of_utterance>",
        pad_token="<|pad|>",
        padding_side="left",
        add_bos_token=True,
    )
    processor = Idefics3Processor(
        Idefics3ImageProcessor(size={"longest_edge": 2 * _TILE}, max_image_size={"longest_edge": _TILE}),
        tokenizer,
        image_seq_len=_TILE_TOKENS,
        chat_template=templates.IDEFICS,
    )
    (image,) = ids(tokenizer, "<image>")
    config = Idefics3Config(  # type: ignore[call-arg]  # pad_token_id: of every config
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config=vision_config(_TILE),
        image_token_id=image,
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Recipe(config, processor, ids(tokenizer, "<end_of_utterance>", "<|end_of_text|>"))


def smolvlm() -> Recipe:
    """SmolVLM: as Idefics3, with a smaller decoder's words; also videos."""
    tokenizer = byte_tokenizer(
        (*CHATML, *_IDEFICS, "<video>"),
        {
            "fake_image_token": "<fake_token_around_image>",
            "image_token": "<image>",
            "end_of_utterance_token": "<end_of_utterance>",
            "global_image_token": "<global-img>",
            "video_token": "<video>",
        },
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
        pad_token="<|im_end|>",
    )
    size = {"longest_edge": 2 * _TILE}
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(size=size, max_image_size={"longest_edge": _TILE}),
        tokenizer,
        SmolVLMVideoProcessor(  # type: ignore[call-arg]  # video_sampling: an undeclared one
            size={"longest_edge": _TILE},
            max_image_size={"longest_edge": _TILE},
            video_sampling={"fps": 1, "max_frames": 8},
        ),
        image_seq_len=_TILE_TOKENS,
        chat_template=templates.IDEFICS,
    )
    (image,) = ids(tokenizer, "<image>")
    config = SmolVLMConfig(  # type: ignore[call-arg]  # as above
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config=vision_config(_TILE),
        image_token_id=image,
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Recipe(config, processor, ids(tokenizer, "<end_of_utterance>"))
