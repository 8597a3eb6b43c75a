"""`generate` runs each distinct prompt once for every class, or a reason says why it does not."""

import pytest
import torch
from transformers import GenerationConfig

from .every import CLAIMED, none, one, two
from .test_finished_rows import ends_of

pytestmark = pytest.mark.slow

# Of these, every row is prefilled by itself, and the reason has these words.
EACH_PREFILLED = {
    "chameleon": "no module of its own",
    "emu3": "native_inputs",
    "fast_vlm": "native_inputs",
    "gemma3n": "native_inputs",
    "hunyuan_vl": "the self-check failed",
    "minimax_m3_vl": "MiniMaxM3VLSparseCacheLayer",
    "mllama": "native_inputs",
    "nemotron_h_omni": "differs from a whole prompt",
    "paligemma": "both directions",
    "phi4_multimodal": "native_inputs",
    "unlimited_ocr": "UnlimitedOcrDynamicReferenceSlidingWindowLayer",
}


@pytest.mark.parametrize("model_type", CLAIMED)
def test_each_prompt_is_prefilled_once_and_logits_are_those_of_stock(twins, model_type):
    twins.policy.base_model.sharing.mode = True
    rows = twins.rows(one(), two(), none())
    rows = [rows[index % len(rows)] for index in (0, 0, 1, 2, 2, 0)]
    never = sorted({*twins.policy.placeholder_ids, *ends_of(twins.bare)})
    config = GenerationConfig(
        max_new_tokens=4,
        do_sample=False,
        suppress_tokens=never,
        output_logits=True,
        return_dict_in_generate=True,
    )
    expected = twins.bare.generate(**twins.native(rows), generation_config=config)
    found = twins.policy.generate(**twins.tickets(rows), generation_config=config)
    assert torch.equal(found.sequences[:, -4:], expected.sequences[:, -4:])
    sampled = torch.ones(expected.logits[0].shape[-1], dtype=torch.bool)
    sampled[[token for token in twins.policy.placeholder_ids if token < len(sampled)]] = False
    for step in range(4):
        ours, stock = (run.logits[step][:, sampled].log_softmax(-1) for run in (found, expected))
        torch.testing.assert_close(ours, stock, atol=5e-5, rtol=1e-4)
    report = twins.policy.sharing_report()
    if model_type in EACH_PREFILLED:
        assert report["prompts_prefilled"] == 0
        assert EACH_PREFILLED[model_type] in next(iter(report["not_shared"]))
    else:
        assert (report["prompts_prefilled"], report["prompts"]) == (3, 6)
        assert report["not_shared"] == {}
