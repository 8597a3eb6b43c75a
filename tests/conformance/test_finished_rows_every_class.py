"""Finished rows leave the batch of every class, or a reason says why they wait."""

import pytest
import torch
from transformers import GenerationConfig

from .every import CLAIMED, none, one, two
from .test_finished_rows import EndAt, ends_of

pytestmark = pytest.mark.slow

# Of these, all rows stay until the last is finished, and the reason has these words.
STAY = {
    "minimax_m3_vl": "MiniMaxM3VLSparseCacheLayer",
    "mllama": "cross_attention_mask",
    "phi4_multimodal": "image_pixel_values",
    "unlimited_ocr": "UnlimitedOcrDynamicReferenceSlidingWindowLayer",
}
LENGTHS = [3, 9, 5, 7, 1, 2]


@pytest.mark.parametrize("model_type", CLAIMED)
@pytest.mark.parametrize("mode", [True, "auto"])
def test_what_is_generated_is_what_stock_generates(twins, model_type, mode):
    twins.policy.base_model.sharing.mode = mode
    rows = twins.rows(one(), two(), none())
    rows = [rows[index % len(rows)] for index in (0, 0, 1, 2, 2, 0)]
    never = sorted({*twins.policy.placeholder_ids, *ends_of(twins.bare)})
    runs = []
    for model, batch in ((twins.bare, twins.native(rows)), (twins.policy, twins.tickets(rows))):
        config = GenerationConfig(max_new_tokens=9, do_sample=True, top_k=0, suppress_tokens=never)
        torch.manual_seed(1)
        ends = [EndAt(LENGTHS)]
        runs.append(model.generate(**batch, generation_config=config, stopping_criteria=ends))
    assert torch.equal(*runs)
    report = twins.policy.sharing_report()
    if model_type in STAY:
        assert STAY[model_type] in next(iter(report["rows_kept"]))
        assert report["row_steps"] == report["row_steps_run"]
    else:
        assert report["rows_kept"] == {}
        assert report["row_steps_run"] == sum(LENGTHS)
