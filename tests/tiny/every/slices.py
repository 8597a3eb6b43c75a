"""Classes that cut an image into slices and pack what they cut, and Molmo's overlapping crops."""

from tests.tiny.every.parts import square

from .outline import Outline
from .qwen_like import LINEAR_ATTENTION


def _minicpm() -> Outline:
    return Outline(
        {
            "image": "<|image_pad|>",
            "video": "<|video_pad|>",
            "image_start": "<image>",
            "image_end": "</image>",
            "slice_start": "<slice>",
            "slice_end": "</slice>",
            "image_id_start": "<image_id>",
            "image_id_end": "</image_id>",
        },
        image_options={"scale_resolution": 224, "max_slice_nums": 4, "patch_size": 16},
        config={
            "image_size": 224,
            "patch_size": 16,
            "insert_layer_id": 0,
            "text_config": LINEAR_ATTENTION,
            "vision_config": {"image_size": 224, "patch_size": 16, "insert_layer_id": 0},
        },
    )


OUTLINES: dict[str, Outline] = {
    "minicpmv4_6": _minicpm(),
    "minicpmv4_7": _minicpm(),
    "minicpm_ocr": _minicpm(),
    "molmo2": Outline(
        {
            "image": "<|image|>",
            "video": "<|video|>",
            "bos": "<|bos|>",
            "image_patch": "<im_patch>",
            "image_start": "<im_start>",
            "image_end": "<im_end>",
            "low_res_image_start": "<low_res_im_start>",
            "frame_start": "<frame_start>",
            "frame_end": "<frame_end>",
        },
        more_words=("<im_col>", "<im_low>"),
        image_options={"size": square(112), "max_crops": 4, "overlap_margins": [1, 1]},
        config={
            "text_config": {"rope_scaling_layers": None, "additional_vocab_size": 8},
            "adapter_config": {
                "vision_feature_layer": [1, 0],
                "text_hidden_size": 64,
                "num_key_value_heads": 2,
                "head_dim": 16,
            },
            "vision_config": {
                "num_key_value_heads": 2,
                "head_dim": 16,
                "image_size": [112, 112],
                "num_position_embeddings": 64,
            },
        },
    ),
}
