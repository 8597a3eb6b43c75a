"""LLaVA, LLaVA-NeXT and LLaVA-OneVision: a projected tower, the latter two over grids of tiles."""

from transformers import (
    LlavaConfig,
    LlavaImageProcessor,
    LlavaNextConfig,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    LlavaProcessor,
    PreTrainedTokenizerBase,
)

from . import templates
from .parts import CHATML, Recipe, ids, square, text_config, vision_config
from .tokens import llama_tokenizer, qwen_tokenizer


def _tokenizer() -> PreTrainedTokenizerBase:
    """Llama 2's words; <s> is put first by the tokenizer, not by the template."""
    return llama_tokenizer(
        ("<unk>", "<s>", "</s>", "<pad>", "<image>"),
        {"image_token": "<image>"},
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side="left",
        add_bos_token=True,
    )


def llava() -> Recipe:
    """LLaVA: a square of 25 tokens."""
    tokenizer = _tokenizer()
    processor = LlavaProcessor(
        LlavaImageProcessor(size={"shortest_edge": 70}, crop_size=square(70)),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=templates.LLAVA,
    )
    (image,) = ids(tokenizer, "<image>")
    config = LlavaConfig(
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config=vision_config(70, model_type="clip_vision_model", projection_dim=32),
        image_token_index=image,
        image_seq_length=25,
    )
    return Recipe(config, processor, ids(tokenizer, "</s>"))


def llava_next() -> Recipe:
    """LLaVA-NeXT: a view of the whole and the tiles of a grid that fits."""
    tokenizer = _tokenizer()
    pinpoints = [[56, 112], [112, 56], [56, 168]]
    processor = LlavaNextProcessor(
        LlavaNextImageProcessor(
            size={"shortest_edge": 56}, crop_size=square(56), image_grid_pinpoints=pinpoints
        ),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=templates.LLAVA_NEXT,
    )
    (image,) = ids(tokenizer, "<image>")
    config = LlavaNextConfig(
        text_config=text_config(tokenizer, model_type="mistral", sliding_window=None),
        vision_config=vision_config(56, model_type="clip_vision_model", projection_dim=32),
        image_token_index=image,
        image_seq_length=16,
        image_grid_pinpoints=pinpoints,
    )
    return Recipe(config, processor, ids(tokenizer, "</s>"))


def llava_onevision() -> Recipe:
    """LLaVA-OneVision: a view of the whole and tiles; also videos."""
    tokenizer = qwen_tokenizer(
        (*CHATML, "<image>", "<video>"),
        {"image_token": "<image>", "video_token": "<video>"},
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    pinpoints = [[56, 56], [56, 112], [112, 56]]
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=square(56), image_grid_pinpoints=pinpoints),
        tokenizer,
        LlavaOnevisionVideoProcessor(size=square(56)),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_9",
        chat_template=templates.ONEVISION,
    )
    image, video = ids(tokenizer, "<image>", "<video>")
    config = LlavaOnevisionConfig(
        text_config=text_config(tokenizer, model_type="qwen2"),
        vision_config=vision_config(56, model_type="siglip_vision_model", vision_use_head=False),
        image_token_index=image,
        video_token_index=video,
        image_grid_pinpoints=pinpoints,
        vision_aspect_ratio="anyres_max_9",
    )
    return Recipe(config, processor, ids(tokenizer, "<|im_end|>"))
