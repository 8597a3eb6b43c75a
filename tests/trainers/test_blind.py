"""Which of TRL's trainers make a policy say that it never sees an image."""

import warnings

import pytest

from tests.trainers.runs import TWO, cat, cup, grpo, said, sft, square, user, woman

pytestmark = pytest.mark.trl


def told(trainer) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    return [str(warning.message) for warning in caught if "have no image" in str(warning.message)]


def answers(images) -> list[dict]:
    rows = [{"prompt": user("What is it?"), "completion": said("A cup.")} for _ in range(4)]
    return [row | {"images": [image]} for row, image in zip(rows, images, strict=True)] if images else rows


@pytest.mark.parametrize("family", TWO)
def test_sft_on_text_is_told_once_and_on_images_never(family, policy_for, tmp_path):
    images = [woman(), cup(), cat(), square("coffee")]
    for column, times in ((None, 1), (images, 0)):
        policy = policy_for(family)
        options = {"max_steps": 20, "per_device_train_batch_size": 1, "peft": policy.lora_config(r=4)}
        assert len(told(sft(policy, answers(column), tmp_path, **options))) == times


@pytest.mark.parametrize("family", TWO)
def test_grpo_with_images_is_not_told(family, policy_for, tmp_path):
    policy = policy_for(family)
    rows = [{"prompt": user("What?"), "images": [square(name)]} for name in ("cat", "coffee", "cat")]
    assert told(grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), max_steps=9)) == []
