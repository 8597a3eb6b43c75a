"""Stock PPO on classes without a written row; how many is as in `tests/trainers/test_every_class.py`."""

import math

import pytest

from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel
from tests.conformance.every import NO_ROOM_FOR_TICKETS, STOCK_DIFFERS, none, one, two
from tests.scoring.runs import log, ppo, with_adapter
from tests.trainers.runs import parameters
from tests.trainers.test_every_class import CLASSES, RANDOM

pytestmark = [pytest.mark.ppo, pytest.mark.each_class, pytest.mark.slow]

# Stock PPO reads the last hidden state of a backbone without a head, and logits that are numbers.
IMPOSSIBLE = {
    "chameleon": "its logits of image tokens are the least number there is, and the entropy is none",
    "gemma3n": "its hidden states have a dimension more",
    "llama4": "it has no backbone without a head",
    "nemotron_h_omni": "it has no backbone without a head",
    "phi4_multimodal": "stock fails when it is asked for hidden states",
}


@pytest.mark.parametrize(
    "model_type", [name for name in CLASSES if name not in IMPOSSIBLE | NO_ROOM_FOR_TICKETS]
)
def test_ppo(model_type, checkpoint, tmp_path):
    policy = AutoVLMPolicy.from_pretrained(checkpoint(model_type), dtype="float32")
    processing = policy.processing_class
    value = AutoVLMValueModel.from_pretrained(
        checkpoint(model_type), processing_class=processing, dtype="float32"
    )
    prompts = [one(), two(), one("cat") if policy.family.needs_image else none(), one("coffee")]
    rows = [processing.encode_prompt(messages) for messages in prompts]
    trainer = ppo(policy, rows, with_adapter(value), tmp_path, peft=policy.lora_config(r=4), total_episodes=4)
    before = parameters(trainer.model)
    trainer.train()
    after = parameters(trainer.model)
    moved = {name for name, weights in after.items() if not weights.equal(before[name])}
    assert any("lora_" in name for name in moved)
    assert all("lora_" in name or "score" in name for name in moved)
    (entry,) = trainer.state.log_history
    assert all(math.isfinite(number) for number in entry.values())
    if model_type not in STOCK_DIFFERS | RANDOM:
        assert abs(log(trainer, "objective/kl")[0]) < 1e-4
