"""The written rows: what neither a model nor its processor tells."""

from .box_format import BoxFormat
from .family import VLMFamily

_TILES = "Tiles with row and column marks."

# Whose decoders have experts for images or select tokens (ERNIE 4.5 VL, Qwen4-exp), whose projector runs in
# the forward itself (Llama 4), and whose towers run once for whole images and once more for crops.
EQUAL_RANKS = frozenset({"ernie4_5_vl_moe", "llama4", "qwen4_exp", "step3p7", "unlimited_ocr"})

FAMILIES: dict[str, VLMFamily] = {
    family.model_type: family
    for family in (
        VLMFamily(
            "internvl",
            counts_by_size=True,
            boxes=BoxFormat(1000, "ref"),
            note="Dynamic tiles plus a thumbnail.",
        ),
        VLMFamily(
            "qwen2_vl",
            counts_by_size=True,
            boxes=BoxFormat(1000, "points"),
            note="Any resolution; 3-D positions.",
        ),
        VLMFamily(
            "qwen2_5_vl", counts_by_size=True, boxes=BoxFormat(None), note="Any resolution; 3-D positions."
        ),
        VLMFamily(
            "qwen3_vl",
            counts_by_size=True,
            boxes=BoxFormat(1000),
            note="Any resolution; 3-D positions; features enter several decoder layers.",
        ),
        VLMFamily(
            "gemma3", counts_by_size=True, note="Image tokens attend to each other in both directions."
        ),
        VLMFamily("llava", counts_by_size=True, note="One fixed-size picture per image."),
        VLMFamily("llava_next", counts_by_size=True, note="Any-resolution tiles."),
        VLMFamily(
            "llava_onevision",
            counts_by_size=True,
            note="Any-resolution tiles for a row's only image, one tile each for several.",
        ),
        VLMFamily("idefics3", counts_by_size=True, note=_TILES),
        VLMFamily("smolvlm", counts_by_size=True, note=_TILES),
        VLMFamily(
            "mistral3",
            least_tokens=2,
            counts_by_size=True,
            note="Any resolution; a break token after every row of patches.",
        ),
        VLMFamily(
            "paligemma",
            counts_by_size=True,
            boxes=BoxFormat(1023, "loc"),
            note="Prompt tokens attend in both directions; every row needs an image.",
        ),
    )
}
