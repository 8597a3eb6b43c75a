"""`generate` with drafts samples what stock samples, for every class, or a reason says why it takes none."""

import pytest
import torch
from transformers import GenerationConfig

from .every import CLAIMED, none, one, two
from .test_finished_rows import ends_of

pytestmark = pytest.mark.slow

# Windows, chunks or states: nothing says how to take back what a wrong draft has left there.
NOT_ALL_KEYS = (
    "aya_vision",
    "cohere2_vision",
    "cohere_compass",
    "dots3_note",
    "exaone4_5",
    "gemma3",
    "gemma3n",
    "gemma4",
    "gemma4_unified",
    "glm5_next",
    "idefics2",
    "inkling2",
    "inkling_mm_model",
    "lfm2_vl",
    "lfm3_vl",
    "llama4",
    "minicpm_ocr",
    "minicpmv4_6",
    "minicpmv4_7",
    "mistral_large4",
    "muse_glimmer",
    "muse_spark",
    "nemotron_h_omni",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen4_exp",
    "shieldgemma2",
    "step3p7",
)

# Of these, tokens come one by one, and the reason has these words.
STAY = dict.fromkeys(NOT_ALL_KEYS, "not all layers of the decoder keep keys") | {
    "hyperclovax_vision_v2": "the model counts positions itself",
    "minimax_m3_vl": "MiniMaxM3VLSparseCacheLayer",
    "mllama": "cross_attention_mask",
    "paligemma": "token_type_ids",
    "phi4_multimodal": "image_pixel_values",
    "unlimited_ocr": "UnlimitedOcrDynamicReferenceSlidingWindowLayer",
}

# And of these, where rows do not share their prompts.
STAY_ALONE = {"molmo2": "image_num_crops"}


@pytest.fixture
def drafting(twins):
    """The twins; the policy drafts up to eight tokens."""
    rollouts = twins.policy.base_model.rollouts
    before, rollouts.speculation = rollouts.speculation, 8
    yield twins
    rollouts.speculation = before


@pytest.mark.parametrize("model_type", CLAIMED)
@pytest.mark.parametrize("mode", [True, False])
def test_what_is_sampled_is_what_stock_samples(drafting, model_type, mode):
    policy, bare = drafting.policy, drafting.bare
    policy.base_model.sharing.mode = mode
    rows = drafting.rows(one(), two(), none())
    rows = [rows[index % len(rows)] for index in (0, 0, 1, 2, 2, 0)]
    never = sorted({*policy.placeholder_ids, *ends_of(bare)})
    for seed in (1, 1, 2):  # of the second, the drafts are what was sampled before
        runs = []
        for model, batch in ((bare, drafting.native(rows)), (policy, drafting.tickets(rows))):
            config = GenerationConfig(max_new_tokens=9, do_sample=True, top_k=0, suppress_tokens=never)
            torch.manual_seed(seed)
            runs.append(model.generate(**batch, generation_config=config))
        assert torch.equal(*runs)
    report = policy.sharing_report()
    stay = STAY if mode else STAY | STAY_ALONE
    if model_type in stay:
        assert stay[model_type] in next(iter(report["not_speculated"]))
        assert report["drafts"] == 0
    else:
        assert report["not_speculated"] == {}
        assert report["forwards_saved"] >= 4
