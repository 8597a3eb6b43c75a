"""PPO in place of GRPO: stock PPOTrainer with a critic on the policy's own weights."""

import pytest

pytestmark = [pytest.mark.ppo, pytest.mark.once, pytest.mark.slow]


def test_it_trains_the_adapter_on_pictures_that_come_once(joined, logos, tmp_path):
    from examples.demo_brands.controls import ppo
    from examples.demo_brands.splits import brand_rows
    from examples.demo_brands.stages import Sizes
    from hf_vlm_rl import AutoVLMPolicy

    asked = []

    def longer(completions, answer, **_):
        asked.extend(answer)
        return [float(len(messages[0]["content"])) for messages in completions]

    # Before its warm start the model names no brand, and nothing would be rewarded.
    policy = AutoVLMPolicy.from_pretrained(joined, dtype="float32")
    graded = brand_rows(logos, 4, "graded", 0)
    trained = ppo(policy, graded, Sizes(prompts=1), 0, tmp_path, reward=longer)
    assert (trained.rows, trained.steps) == (4, 4)
    assert sorted(asked) == sorted(graded["answer"])
    tuned = [weight for name, weight in trained.model.named_parameters() if "lora_B.default" in name]
    assert tuned
    assert all(weight.abs().max() > 0 for weight in tuned)
