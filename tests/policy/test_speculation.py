"""The setting of drafts, and what is kept for them."""

import copy
import pickle

import pytest
from transformers import GenerationConfig

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.policy.rollouts.drafts import KEPT_COMPLETIONS, PastCompletions
from tests.conformance.cases import one_image, tickets


@pytest.mark.parametrize("speculation", [0, -1, 2.0, "auto", None])
def test_bad_values_are_refused(speculation, checkpoint):
    with pytest.raises(ValueError, match="Expected True, False or the most tokens"):
        AutoVLMPolicy.from_pretrained(checkpoint("internvl"), speculation=speculation)


def test_it_is_off_unless_asked_for_and_nothing_is_kept_then(checkpoint, tmp_path):
    plain = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32")
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32", speculation=True)
    for each in (plain, policy):
        batch = tickets(each.processing_class, [one_image()] * 2)
        each.generate(**batch, generation_config=GenerationConfig(max_new_tokens=5, pad_token_id=3))
    kept = [each.base_model.rollouts.completions.nbytes for each in (plain, policy)]
    assert kept[0] == 0 < kept[1]
    policy.save_pretrained(tmp_path)
    policy.processing_class.save_pretrained(tmp_path)
    saved = AutoVLMPolicy.from_pretrained(tmp_path, dtype="float32")
    assert saved.base_model.rollouts.speculation is False
    rollouts = policy.base_model.rollouts
    for copied in (copy.deepcopy(rollouts), pickle.loads(pickle.dumps(rollouts))):
        assert copied.speculation is True
        assert copied.completions.nbytes == 0


def test_what_is_kept_is_bounded():
    kept = PastCompletions(limit_bytes=400)
    for number in range(50):
        kept.add(b"one", [[number] * 3])
    assert kept.of(b"one") == [[number] * 3 for number in range(50 - KEPT_COMPLETIONS, 50)]
    kept.add(b"two", [[7] * 60])
    assert kept.of(b"one") == []
    assert kept.of(b"two") == [[7] * 60]
    assert kept.nbytes == 240
