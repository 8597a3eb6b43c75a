"""The written rows: what neither a model nor its processor tells."""

from .box_format import BoxFormat
from .family import VLMFamily

# Whose decoders have experts for images or select tokens (ERNIE 4.5 VL, Qwen4-exp), whose projector runs in
# the forward itself (Llama 4), and whose towers run once for whole images and once more for crops.
EQUAL_RANKS = frozenset({"ernie4_5_vl_moe", "llama4", "qwen4_exp", "step3p7", "unlimited_ocr"})

FAMILIES: dict[str, VLMFamily] = {
    family.model_type: family
    for family in (
        VLMFamily("internvl", counts_by_size=True, boxes=BoxFormat(1000, "ref")),
        VLMFamily("qwen2_vl", counts_by_size=True, boxes=BoxFormat(1000, "points")),
        VLMFamily("qwen2_5_vl", counts_by_size=True, boxes=BoxFormat(None)),
        VLMFamily("qwen3_vl", counts_by_size=True, boxes=BoxFormat(1000)),
        VLMFamily("gemma3", counts_by_size=True),
        VLMFamily("llava", counts_by_size=True),
        VLMFamily("llava_next", counts_by_size=True),
        VLMFamily("llava_onevision", counts_by_size=True),
        VLMFamily("idefics3", counts_by_size=True),
        VLMFamily("smolvlm", counts_by_size=True),
        VLMFamily("mistral3", least_tokens=2, counts_by_size=True),
        VLMFamily("paligemma", counts_by_size=True, boxes=BoxFormat(1023, "loc")),
    )
}
