"""Gemma 3, PaliGemma and Mistral 3: one view an image, fixed in size or with Pixtral's rows."""

from transformers import (
    Gemma3Config,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Mistral3Config,
    PaliGemmaConfig,
    PaliGemmaProcessor,
    PixtralImageProcessor,
    PixtralProcessor,
    SiglipImageProcessor,
)

from . import templates
from .parts import Recipe, ids, square, text_config, vision_config
from .tokens import byte_tokenizer, gemma_tokenizer

_GEMMA = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>")


def gemma3() -> Recipe:
    """Gemma 3: 16 tokens an image, which see each other in both directions."""
    tokenizer = gemma_tokenizer(
        (*_GEMMA, "<start_of_image>", "<end_of_image>", "<image_soft_token>"),
        {
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
        eos_token="<end_of_turn>",
        add_bos_token=True,
    )
    processor = Gemma3Processor(
        Gemma3ImageProcessor(size=square(112)),
        tokenizer,
        image_seq_length=16,
        chat_template=templates.GEMMA3,
    )
    boi, eoi, image = ids(tokenizer, "<start_of_image>", "<end_of_image>", "<image_soft_token>")
    text = text_config(
        tokenizer,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"],
    )
    config = Gemma3Config(  # type: ignore[call-arg]  # eos_token_id: of every config
        text_config=text,
        vision_config=vision_config(112, model_type="siglip_vision_model", vision_use_head=False),
        mm_tokens_per_image=16,
        boi_token_index=boi,
        eoi_token_index=eoi,
        image_token_index=image,
        eos_token_id=list(ids(tokenizer, "<end_of_turn>", "<eos>")),
    )
    return Recipe(config, processor, ids(tokenizer, "<end_of_turn>", "<eos>"))


def mistral3() -> Recipe:
    """Mistral 3: an image in its own proportions, with a mark after each row."""
    instructions = ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
    tokenizer = byte_tokenizer(
        ("<unk>", "<s>", "</s>", "<pad>", *instructions, "[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        {},
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        add_bos_token=True,
    )
    processor = PixtralProcessor(
        PixtralImageProcessor(size={"longest_edge": 168}, patch_size=14),
        tokenizer,
        patch_size=14,
        spatial_merge_size=2,
        chat_template=templates.MISTRAL3,
    )
    (image,) = ids(tokenizer, "[IMG]")
    config = Mistral3Config(
        text_config=text_config(tokenizer, model_type="mistral", head_dim=16, sliding_window=None),
        vision_config=vision_config(168, model_type="pixtral"),
        image_token_index=image,
        spatial_merge_size=2,
        tie_word_embeddings=False,
    )
    return Recipe(config, processor, ids(tokenizer, "</s>"))


def paligemma() -> Recipe:
    """PaliGemma: images first, and a prompt that sees all of itself."""
    tokenizer = gemma_tokenizer((*_GEMMA, "<image>"), {"image_token": "<image>"})
    image_processor = SiglipImageProcessor(size=square(56), image_seq_length=16)
    processor = PaliGemmaProcessor(image_processor, tokenizer, chat_template=templates.PALIGEMMA)
    (image,) = ids(tokenizer, "<image>")
    text = text_config(tokenizer, model_type="gemma", head_dim=16, num_key_value_heads=1)
    config = PaliGemmaConfig(
        text_config=text,
        vision_config=vision_config(
            56, model_type="siglip_vision_model", vision_use_head=False, projection_dim=64
        ),
        image_token_index=image,
        vocab_size=text["vocab_size"],
        projection_dim=64,
        hidden_size=64,
    )
    return Recipe(config, processor, ids(tokenizer, "<eos>"))
