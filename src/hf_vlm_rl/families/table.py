"""The built-in families: a dict that reads from top to bottom."""

from .box_format import BoxFormat
from .family import VLMFamily

_PIXELS = {"min_pixels": "min_pixels", "max_pixels": "max_pixels"}
_QWEN = {
    "vision": "model.visual",
    "projector": ("model.visual.merger",),
    "token_types": "mm_token_type_ids",
    "grids": True,
    "counts_by_size": True,
    "processor_options": _PIXELS,
}
_IDEFICS = {
    "vision": "model.vision_model",
    "projector": ("model.connector",),
    "language": "model.text_model",
    "counts_by_size": True,
}

FAMILIES: dict[str, VLMFamily] = {
    family.model_type: family
    for family in (
        VLMFamily(
            "internvl",
            counts_by_size=True,
            processor_options={"min_tiles": "min_patches", "max_tiles": "max_patches"},
            boxes=BoxFormat(1000, "ref"),
            note="Dynamic tiles plus a thumbnail.",
        ),
        VLMFamily(
            "qwen2_vl", **_QWEN, boxes=BoxFormat(1000, "points"), note="Any resolution; 3-D positions."
        ),
        VLMFamily("qwen2_5_vl", **_QWEN, boxes=BoxFormat(None), note="Any resolution; 3-D positions."),
        VLMFamily(
            "qwen3_vl",
            **(_QWEN | {"projector": ("model.visual.merger", "model.visual.deepstack_merger_list")}),
            boxes=BoxFormat(1000),
            note="Any resolution; 3-D positions; features enter several decoder layers.",
        ),
        VLMFamily(
            "gemma3",
            token_types="token_type_ids",
            counts_by_size=True,
            note="Image tokens attend to each other in both directions.",
        ),
        VLMFamily("llava", counts_by_size=True, note="One fixed-size picture per image."),
        VLMFamily("llava_next", counts_by_size=True, note="Any-resolution tiles."),
        VLMFamily(
            "llava_onevision",
            alone_differs=True,
            counts_by_size=True,
            note="Any-resolution tiles for a row's only image, one tile each for several.",
        ),
        VLMFamily("idefics3", **_IDEFICS, note="Tiles with row and column marks."),
        VLMFamily("smolvlm", **_IDEFICS, note="Tiles with row and column marks."),
        VLMFamily(
            "mistral3",
            least_tokens=2,
            counts_by_size=True,
            note="Any resolution; a break token after every row of patches.",
        ),
        VLMFamily(
            "paligemma",
            token_types="token_type_ids",
            prefix_attention=True,
            needs_image=True,
            counts_by_size=True,
            boxes=BoxFormat(1023, "loc"),
            note="Prompt tokens attend in both directions; every row needs an image.",
        ),
    )
}
