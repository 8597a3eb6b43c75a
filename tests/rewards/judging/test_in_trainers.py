"""A judge in stock trainers: images arrive as they were, and a group without a verdict teaches nothing."""

import numpy as np
import pytest
from datasets import Dataset
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

from tests.trainers.runs import PLAIN, cat, cup, grpo, logs, rloo, user, woman

pytestmark = pytest.mark.trl

FAMILY = "qwen2_5_vl"
IMAGES = [woman(), cup(), cat()]


def rows():
    return [{"prompt": user("What is it?"), "image": image} for image in IMAGES]


def pixels(image):
    return np.asarray(image.convert("RGB")).tobytes()


class Seen:
    """A reward function that remembers what another one returned."""

    __name__ = "seen"

    def __init__(self, reward):
        self.reward, self.returned = reward, []

    def __call__(self, completions, image, **columns):
        rewards = self.reward(completions, image=image, **columns)
        self.returned += zip(map(pixels, image), rewards, strict=True)
        return rewards


@pytest.mark.parametrize("train", [grpo, rloo], ids=["grpo", "rloo"])
def test_a_trainer_learns_from_judged_groups_and_leaves_out_the_other(train, judging, policy_for, tmp_path):
    refused = pixels(cup())
    judging.server.verdict = lambda document, images: (
        400 if pixels(images[0]) == refused else {"reason": "", "score": len(document["answer"]) % 11}
    )
    policy, judge = policy_for(FAMILY), judging.score(cache=tmp_path / "verdicts")
    seen = Seen(judge)
    trainer = train(policy, rows(), tmp_path, reward=seen, peft=policy.lora_config(r=4), max_steps=3)
    trainer.train()
    assert {pixels(image) for image in judging.server.images} == set(map(pixels, IMAGES))
    assert len(seen.returned) == 6
    assert [reward for image, reward in seen.returned if image == refused] == [None, None]
    given = [reward for image, reward in seen.returned if image != refused]
    assert None not in given
    (first, *_) = logs(trainer, "rewards/seen/mean", "score_judge/failed", "grad_norm")
    assert first[0] == pytest.approx(np.mean(given))
    assert first[1] == pytest.approx(1 / 3)
    assert all(np.isfinite(norm) for *_, norm in logs(trainer, "rewards/seen/mean", "grad_norm"))


def test_async_judges_are_awaited_together(judging, policy_for, tmp_path):
    judging.server.verdict = lambda document, images: (
        {"reason": "", "score": 3} if "answer" in document else {"reason": "", "better": "tie"}
    )
    rewards = [judging.score().as_coroutine(), judging.pair().as_coroutine()]
    policy = policy_for(FAMILY)
    trainer = grpo(policy, rows(), tmp_path, reward=rewards, peft=policy.lora_config(r=4), max_steps=1)
    trainer.train()
    names = ("rewards/score_judge/mean", "rewards/pair_judge/mean")
    assert logs(trainer, *names)[0] == pytest.approx([0.3, 0.5])


def test_online_dpo_takes_pairs_about_images_from_tickets(judging, policy_for, tmp_path):
    shown = []
    judging.server.verdict = lambda document, images: (
        shown.append((document, images[0])) or {"reason": "", "better": "A"}
    )
    policy = policy_for(FAMILY)
    judge = judging.pair(tokenizer=policy.tokenizer, failed="raise")
    trainer = OnlineDPOTrainer(
        model=policy,
        processing_class=policy.tokenizer,
        reward_funcs=judge,
        args=OnlineDPOConfig(
            output_dir=str(tmp_path),
            **PLAIN,
            per_device_train_batch_size=3,
            max_steps=1,
            max_length=512,
            max_new_tokens=5,
        ),
        train_dataset=Dataset.from_list(rows()).map(policy.tokenizer.with_tickets, remove_columns="image"),
        peft_config=policy.lora_config(r=4),
    )
    trainer.train()
    # Three pairs, either way; of each, both completions of one prompt about one image.
    assert len(shown) == 6
    assert {pixels(image) for _, image in shown} == set(map(pixels, IMAGES))
    assert all("What is it?" in str(document["conversation"]) for document, _ in shown)
    assert "ticket" not in str(shown)
    assert logs(trainer, "objective/scores")[0] == [0.5]
