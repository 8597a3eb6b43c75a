"""All outlines, and the recipe that an outline and the general rules make."""

from hf_vlm_rl.families.tiny.recipes import Recipe, ids

from . import apart, discrete, documents, gemma, glm, qwen_like, slices, sounds, views
from .configs import tiny_config
from .outline import Outline
from .processors import tiny_processor, tiny_tokenizer

OUTLINES: dict[str, Outline] = {
    **qwen_like.OUTLINES,
    **glm.OUTLINES,
    **gemma.OUTLINES,
    **views.OUTLINES,
    **slices.OUTLINES,
    **documents.OUTLINES,
    **discrete.OUTLINES,
    **sounds.OUTLINES,
    **apart.OUTLINES,
}


def outlined(model_type: str) -> Recipe:
    """The configuration and processor that the outline of `model_type` makes."""
    outline = OUTLINES[model_type]
    tokenizer = tiny_tokenizer(outline)
    processor = tiny_processor(model_type, outline, tokenizer)
    return Recipe(
        tiny_config(model_type, outline, tokenizer),
        processor,
        ids(tokenizer, "<|im_end|>"),
        original_format=outline.original_format,
        one_image=outline.one_image,
    )
