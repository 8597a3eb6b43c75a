"""The table of arguments against the classes of transformers."""

import inspect

import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, MODEL_MAPPING

from hf_vlm_rl.policy.arguments import ARGUMENTS, BACKBONE, STEP, choose_rows, require_known, require_rows
from hf_vlm_rl.policy.report import Refused

# Names without a row in the table: rows of a batch that comes with one of them do not share, unless the
# family says that it comes with images or only changes their features.
REFUSED = """
    action_embeds actions aspect_ratio_ids aspect_ratio_mask audio_feature_lengths audio_input_ids
    audio_input_ids_mask batch_num_images bbox chunk_sample_lengths cross_attention_mask
    cross_attention_states decoder_attention_mask decoder_input_ids decoder_inputs_embeds
    decoder_position_ids downsample_mode encoder_outputs feature_attention_mask flattened_patches height
    high_res_pixel_values image_attention_mask image_embeds image_embeds_position_mask
    image_encoder_embeddings image_grid_hw image_grids image_merge_sizes image_num_crops image_patches
    image_position_ids image_sizes image_sizes_videos image_token_pooling input_features
    input_features_mask input_values input_values_mask interpolate_pos_encoding kwargs labels
    msa_batch_mask msa_feats noise num_frames_per_video num_local_patches padding_mask patches_grid
    perceiver_embeddings pixel_attention_mask pixel_mask pixel_values pixel_values_images
    pixel_values_local pixel_values_videos protein_attention_mask protein_input_ids
    qformer_attention_mask qformer_input_ids return_loss router_labels second_per_grid_ts self
    self_conditioning_logits self_conditioning_mask spatial_shapes state structure_batch_mask
    structure_feats target_sizes target_sizes_videos tile_fine_mask timestep use_audio_in_video
    video_compression_mask video_grid_thw video_grids video_merge_sizes video_position_ids
    video_second_per_grid video_token_pooling vision_aspect_ratio vision_feature_layer
    vision_feature_layers vision_feature_select_strategy visual_bbox width
""".split()  # noqa: SIM905


def test_every_name_of_a_forward_is_in_the_table_or_known_to_be_refused():
    """A name that fails here came with a new transformers: give it a row, or add it to `REFUSED`."""
    names: set[str] = set()
    for config, model in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.items():
        models = [*(model if isinstance(model, tuple) else (model,))]
        if config in MODEL_MAPPING:
            models.append(MODEL_MAPPING[config])
        for kind in models:
            names |= inspect.signature(kind.forward).parameters.keys()
    assert names - ARGUMENTS.keys() - set(REFUSED) == set()


@pytest.mark.parametrize("name", ["tree_kv_index", "pixel_values_videos", "a_name_of_tomorrow"])
def test_a_name_that_nobody_knows_is_refused_if_it_says_something(name):
    require_known({name: None, "input_ids": torch.ones(2, 3)}, BACKBONE, "the caller passes")
    with pytest.raises(Refused, match=f"the caller passes {name}"):
        require_known({name: torch.ones(1)}, BACKBONE, "the caller passes")


def test_rows_of_a_step_are_chosen_in_the_dimension_that_the_table_names():
    step = {
        "input_ids": torch.tensor([[1], [2], [3]]),
        "position_ids": torch.arange(9).view(3, 3, 1),
        "attention_mask": {"full_attention": torch.arange(6).view(3, 2), "sliding_attention": None},
        "mm_token_type_ids": torch.zeros(1, 1),
        "use_cache": True,
    }
    require_rows(step, 3)
    chosen = choose_rows(step, torch.tensor([2, 0]))
    assert chosen["input_ids"].tolist() == [[3], [1]]
    assert chosen["position_ids"].tolist() == [[[2], [0]], [[5], [3]], [[8], [6]]]
    assert chosen["attention_mask"]["full_attention"].tolist() == [[4, 5], [0, 1]]
    assert chosen["mm_token_type_ids"].shape == (1, 1)
    assert chosen["use_cache"] is True


@pytest.mark.parametrize(
    ("name", "value"),
    [("input_ids", torch.ones(2, 1)), ("attention_mask", [1, 1, 1]), ("inputs_embeds", torch.ones(3, 1, 4))],
)
def test_a_step_without_a_place_for_each_row_is_refused(name, value):
    assert (name in STEP) == (name != "inputs_embeds")
    with pytest.raises(Refused, match=f"the model's decoding step takes {name}"):
        require_rows({name: value}, 3)
