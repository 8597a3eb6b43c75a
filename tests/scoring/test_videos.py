"""PPO on videos: their tickets are inside the ids."""

import copy
import math

import pytest
from datasets import Dataset

from hf_vlm_rl import AutoVLMValueModel
from tests.conformance.test_videos import VIDEO_FAMILIES
from tests.scoring.runs import log, ppo, with_adapter
from tests.trainers.runs import parameters, split_by_change
from tests.videos import asked, image, moving, video

pytestmark = [pytest.mark.ppo, pytest.mark.slow]


@pytest.fixture
def run_for(policy_for, checkpoint, tmp_path):
    """`run_for(family, **options)`: a policy and its trainer on two clips, a clip with an image, and text."""

    def make(family, **options):
        policy = policy_for(family)
        encode = policy.processing_class.encode_prompt
        short, long = video(moving("astronaut")), video(moving("coffee", 8))
        conversations = [
            asked(short),
            asked(long, text="Which way does the camera go?"),
            asked(image("cat"), short, text="Compare them."),
            asked(text="Say hello to me."),
        ]
        rows = Dataset.from_list([encode(conversation) for conversation in conversations])
        value = with_adapter(AutoVLMValueModel.from_pretrained(checkpoint(family), dtype="float32"))
        return policy, ppo(policy, rows, value, tmp_path, peft=policy.lora_config(r=4), **options)

    return make


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_two_updates_move_every_trainable_parameter(family, run_for):
    policy, trainer = run_for(family)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    assert all(math.isfinite(value) for entry in trainer.state.log_history for value in entry.values())
    kl = log(trainer, "objective/kl")
    assert abs(kl[0]) < 1e-5
    assert abs(kl[1]) > 1e-5
    assert policy.sharing_report()["images_encoded"] == 3


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_log_probs_while_sampling_are_those_recomputed(family, run_for):
    _, trainer = run_for(family, learning_rate=0.0, total_episodes=4, num_mini_batches=1)
    trainer.train()
    (entry,) = copy.copy(trainer.state.log_history)
    assert entry["val/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert entry["policy/approxkl_avg"] < 1e-9
    assert abs(entry["objective/kl"]) < 1e-5
