"""Comparisons of a decoder with stock before a fast path is first taken."""

import copy

import pytest
import torch

from hf_vlm_rl.policy.arguments import ATTENTION, require_known
from hf_vlm_rl.policy.caches.prefix_cache import prefix_cache_attention
from hf_vlm_rl.policy.generate.agreement import SHARED_CACHE, STEP
from hf_vlm_rl.policy.probe import OF_BATCHES, Check, Verdicts, ordinary_ids, setting_of
from hf_vlm_rl.policy.report import Refused
from hf_vlm_rl.policy.sharing.agreement import ROWS

CHECKS = {"step": STEP, "shared cache": SHARED_CACHE, "rows": ROWS}
TF32 = torch.backends.mkldnn.matmul if hasattr(torch.backends.mkldnn, "matmul") else None


def off_by(share: float) -> Check:
    """A check whose two sides differ by this share of the largest value."""
    values = torch.tensor([1.0, -2.0])
    return Check("where one is off", lambda _: values, lambda _: values * (1 + share), OF_BATCHES)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_special_tokens_do_not_decide(check, policy_for):
    decoder = copy.deepcopy(policy_for("internvl").base_model.decoder)
    weight = decoder.get_input_embeddings().weight
    with torch.no_grad():
        weight[: len(weight) // 4] = weight[-(len(weight) // 4) :] = float("nan")
    Verdicts().ask(check, decoder)


@pytest.mark.parametrize("count", [1, 6, 50])
def test_ordinary_ids_differ_and_lie_in_the_middle(count, policy_for):
    decoder = policy_for("internvl").base_model.decoder
    words = len(decoder.get_input_embeddings().weight)
    ids = ordinary_ids(decoder, count).tolist()
    assert len(set(ids)) == count
    assert words // 4 <= min(ids) <= max(ids) < words - words // 4


def test_a_difference_beyond_rounding_is_refused_in_words(policy_for):
    decoder = policy_for("internvl").base_model.decoder
    Verdicts().ask(off_by(2e-5), decoder)
    with pytest.raises(Refused, match=r"where one is off, .* differ by 1\.0e-03 .*at most 5e-05"):
        Verdicts().ask(off_by(1e-3), decoder)


def test_a_decoder_in_float32_is_compared_in_float32_under_autocast_too(policy_for):
    decoder = policy_for("internvl").base_model.decoder
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(Refused, match=r"1\.0e-03"):
        Verdicts().ask(off_by(1e-3), decoder)


def test_half_precision_allows_what_it_rounds(policy_for):
    decoder = policy_for("internvl").base_model.decoder.to(torch.bfloat16)
    Verdicts().ask(off_by(1e-2), decoder)
    with pytest.raises(Refused, match="at most 1e-01"):
        Verdicts().ask(off_by(0.2), decoder)


@pytest.mark.skipif(TF32 is None, reason="torch before 2.9 has no setting of precision for each device")
def test_numbers_rounded_by_the_device_are_another_setting(policy_for):
    """`TrainingArguments(tf32=True)` sets it, after which torch's older question raises."""
    decoder = policy_for("internvl").base_model.decoder
    before = setting_of(decoder)
    precision, TF32.fp32_precision = TF32.fp32_precision, "tf32"
    try:
        assert setting_of(decoder) == before._replace(rounded=True)
    finally:
        TF32.fp32_precision = precision
    assert setting_of(decoder) == before


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_autocast_keeps_no_weight_of_a_check(check, policy_for):
    """It would be one without a gradient, for the forward that asks."""
    decoder = policy_for("qwen2_5_vl").base_model.decoder.train()
    words = ordinary_ids(decoder, 8)[None]
    gradients = []
    for asked in (True, False):
        decoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            if asked:
                Verdicts().ask(check, decoder)
            embeddings = decoder.get_input_embeddings()(words)
            decoder(
                inputs_embeds=embeddings, use_cache=False
            ).last_hidden_state.float().square().sum().backward()
        gradients.append({name: weight.grad for name, weight in decoder.named_parameters()})
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient, rtol=0, atol=0)


def test_an_error_of_the_device_is_no_verdict(policy_for):
    def fail(_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    decoder = policy_for("internvl").base_model.decoder
    with pytest.raises(torch.OutOfMemoryError):
        Verdicts().ask(Check("where memory ends", lambda _: torch.ones(1), fail, OF_BATCHES), decoder)


def test_an_error_of_an_unknown_decoder_is_one(policy_for):
    def fail(_: object) -> torch.Tensor:
        raise TypeError("no such argument")

    decoder = policy_for("internvl").base_model.decoder
    with pytest.raises(Refused, match="raises TypeError: no such argument"):
        Verdicts().ask(Check("where it fails", lambda _: torch.ones(1), fail, OF_BATCHES), decoder)


def test_arguments_that_may_change_weights_are_named():
    harmless = {"sliding_window": 4, "is_causal": True, "position_bias": None, "logits_to_keep": 2}
    require_known(harmless, ATTENTION, "attention takes")
    with pytest.raises(Refused, match="attention takes position_bias"):
        require_known(harmless | {"position_bias": torch.zeros(1)}, ATTENTION, "attention takes")
    tensors = [torch.zeros(1, 1, 1, 16)] * 3
    with pytest.raises(Refused, match="the attention module takes indices"):
        prefix_cache_attention(torch.nn.Identity(), *tensors, None, prefix_layer=None, indices=tensors[0])
