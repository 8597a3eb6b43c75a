"""`generate` of every class runs each prompt once and lets finished rows leave, or a reason says why not."""

import pytest
import torch
from transformers import GenerationConfig

from hf_vlm_rl.families.derive_inputs import token_types

from .every import CLAIMED, none, one, two
from .test_finished_rows import EndAt, ends_of

CHECK_FAILED = "the self-check failed"
# Of these, every row is prefilled by itself, and the reason has these words. Random weights may pass a check.
EACH_PREFILLED = {
    "chameleon": "no module of its own",
    "emu3": "native_inputs",
    "fast_vlm": "native_inputs",
    "gemma3n": "native_inputs",
    "hunyuan_vl": CHECK_FAILED,
    "minimax_m3_vl": "MiniMaxM3VLSparseCacheLayer",
    "mllama": "native_inputs",
    "nemotron_h_omni": CHECK_FAILED,
    "paligemma": "both directions",
    "phi4_multimodal": "native_inputs",
    "unlimited_ocr": "UnlimitedOcrDynamicReferenceSlidingWindowLayer",
}

# Of these, all rows stay until the last is finished, and the reason has these words.
STAY = {
    "minimax_m3_vl": "MiniMaxM3VLSparseCacheLayer",
    "mllama": "cross_attention_mask",
    "phi4_multimodal": "image_pixel_values",
    "unlimited_ocr": "UnlimitedOcrDynamicReferenceSlidingWindowLayer",
}
LENGTHS = [3, 9, 5, 7, 1, 2]

every = pytest.mark.parametrize("model_type", CLAIMED)


def generated(twins, config: dict, **options) -> list:
    """What stock and the policy make of six rows with three distinct prompts, from one seed."""
    rows = twins.rows(one(), two(), none())
    rows = [rows[index % len(rows)] for index in (0, 0, 1, 2, 2, 0)]
    never = sorted({*twins.policy.placeholder_ids, *ends_of(twins.bare)})
    runs = []
    for model, batch in ((twins.bare, twins.native(rows)), (twins.policy, twins.tickets(rows))):
        generation_config = GenerationConfig(suppress_tokens=never, **config)
        torch.manual_seed(1)
        made = {name: make() for name, make in options.items()}
        runs.append(model.generate(**batch, generation_config=generation_config, **made))
    return runs


@every
def test_each_prompt_is_prefilled_once_and_logits_are_those_of_stock(twins, model_type):
    twins.policy.base_model.sharing.mode = True
    config = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    expected, found = generated(twins, config)
    assert torch.equal(found.sequences[:, -4:], expected.sequences[:, -4:])
    sampled = torch.ones(expected.logits[0].shape[-1], dtype=torch.bool)
    sampled[[token for token in twins.policy.placeholder_ids if token < len(sampled)]] = False
    for step in range(4):
        ours, stock = (run.logits[step][:, sampled].log_softmax(-1) for run in (found, expected))
        torch.testing.assert_close(ours, stock, atol=5e-5, rtol=1e-4)
    report = twins.policy.sharing_report()
    passed = EACH_PREFILLED.get(model_type) == CHECK_FAILED and report["not_shared"] == {}
    if model_type in EACH_PREFILLED and not passed:
        assert report["prompts_prefilled"] == 0
        assert EACH_PREFILLED[model_type] in next(iter(report["not_shared"]))
    else:
        assert (report["prompts_prefilled"], report["prompts"]) == (3, 6)
        assert report["not_shared"] == {}


@every
def test_nothing_is_sampled_that_its_processor_takes_for_a_part_of_an_image(twins, model_type):
    ids = torch.arange(len(twins.processing))[None]
    for name in twins.policy.family.token_types:
        kinds = token_types(twins.processing, name, ids)
        images = set(ids[(kinds == 1) | (kinds == 2)].tolist())
        if not twins.policy.family.prefix_attention:  # their types tell prompts from answers
            assert images <= set(twins.policy.placeholder_ids)


@every
@pytest.mark.parametrize("mode", [True, "auto"])
def test_finished_rows_leave_and_the_others_go_on_as_in_stock(twins, model_type, mode):
    twins.policy.base_model.sharing.mode = mode
    config = {"max_new_tokens": 9, "do_sample": True, "top_k": 0}
    assert torch.equal(*generated(twins, config, stopping_criteria=lambda: [EndAt(LENGTHS)]))
    report = twins.policy.sharing_report()
    if model_type in STAY:
        assert STAY[model_type] in next(iter(report["rows_kept"]))
        assert report["row_steps"] == report["row_steps_run"]
    else:
        assert report["rows_kept"] == {}
        assert report["row_steps_run"] == sum(LENGTHS)
