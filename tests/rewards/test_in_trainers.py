"""The rewards in TRL's own trainers: columns, images and conversations arrive as they do there."""

import pytest
import torch
from datasets import Dataset

from hf_vlm_rl import AutoVLMRewardModel, ColumnError, ModelReward, RewardError, RewardFunctionModel
from hf_vlm_rl.families.box_coordinates import BoxCoordinates
from hf_vlm_rl.rewards import (
    IoUReward,
    LengthReward,
    RepetitionReward,
    compose,
    diagnose,
    exact_match_reward,
    format_reward,
)
from tests.conformance.cases import mixture as prompts_of
from tests.trainers.runs import cat, grpo, logs, mixture, rloo, said, square, user

pytestmark = pytest.mark.trl

FAMILY = "qwen2_5_vl"


def rows():
    # Three images with one question; only two of the rows have a box.
    boxes = [[0, 0, 50, 50], None, [10, 10, 96, 96]]
    images = [square("astronaut"), square("coffee"), cat()]
    return [
        {"prompt": user("Where?"), "image": image, "box": box, "answer": "here"}
        for image, box in zip(images, boxes, strict=True)
    ]


def test_grpo_trains_on_rewards_that_read_columns_images_and_groups(policy_for, tmp_path):
    policy, groups = policy_for(FAMILY), []

    def seen(prompts, completions, image, **columns):
        # Inside the trainer: the same question about three images makes three groups of two.
        report = diagnose(LengthReward(0, 1), completions, prompts, image=image, **columns)
        groups.append(report.groups)
        return [0.1 * len(ids) for ids in columns["completion_ids"]]

    iou = IoUReward(coordinates=BoxCoordinates.of(policy.processing_class))
    functions = [
        seen,
        iou,
        exact_match_reward,
        compose(format_reward, RepetitionReward(n=1, unit="tokens"), name="manners"),
    ]
    trainer = grpo(policy, rows(), tmp_path, reward=functions, peft=policy.lora_config(r=4), max_steps=1)
    assert trainer.reward_func_names[1:] == ["iou_reward", "exact_match_reward", "manners"]
    trainer.train()
    assert groups == [3]
    ((iou_mean, accuracy, manners),) = logs(
        trainer, *(f"rewards/{name}/mean" for name in trainer.reward_func_names[1:])
    )
    assert (iou_mean, accuracy) == (0.0, 0.0)  # a random model has no boxes
    assert -1 <= manners <= 0


def test_grpo_stops_at_the_first_batch_without_the_column(policy_for, tmp_path):
    policy = policy_for(FAMILY)
    data = [{key: row[key] for key in ("prompt", "image")} for row in rows()]
    trainer = grpo(policy, data, tmp_path, reward=exact_match_reward, peft=policy.lora_config(r=4))
    with pytest.raises(ColumnError, match="exact_match_reward reads the column 'answer', which is missing"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.filterwarnings("ignore:.*has no score.weight")
@pytest.mark.parametrize("train", [grpo, rloo], ids=["grpo", "rloo"])
def test_a_reward_model_sees_the_images_of_one_two_and_none(train, policy_for, checkpoint, tmp_path):
    policy, seen = policy_for(FAMILY), []
    model = AutoVLMRewardModel.from_pretrained(
        checkpoint(FAMILY), dtype="float32", processing_class=policy.processing_class
    )
    reward = ModelReward(model, batch_size=4)

    def taste(completions, place, **columns):
        seen.append((completions, place, reward(completions, **columns)))
        return seen[-1][2]

    data = [row | {"place": place} for place, row in enumerate(mixture(FAMILY))]
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainer = train(policy, data, tmp_path, reward=taste, peft=policy.lora_config(r=4), max_steps=3)
    trainer.train()
    ((completions, places, scores),) = seen
    assert sorted(places) == [0, 0, 1, 1, 2, 2]
    own = []
    for completion, place in zip(completions, places, strict=True):
        messages = [*data[place]["prompt"], *said(completion[0]["content"])]
        encoded = model.processing_class.encode_prompt(messages, data[place]["images"])
        with torch.no_grad():
            own.append(model(**model.processing_class.pad([encoded], return_tensors="pt")).logits.item())
    assert scores == pytest.approx(own, rel=1e-6, abs=1e-6)
    assert logs(trainer, "rewards/taste/mean", "model_reward/failed")[0] == pytest.approx(
        [sum(scores) / 6, 0.0], rel=1e-5
    )
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())


def scores_of_ppo(policy, answers, reward):
    processing = policy.processing_class
    encoded = [
        processing.encode_prompt(prompt, answer=answer)
        for prompt, answer in zip(prompts_of(FAMILY)[:2], answers, strict=True)
    ]
    queries = processing.pad(encoded, return_tensors="pt")["input_ids"]
    said = processing.tokenizer("cat", add_special_tokens=False)["input_ids"]
    ids = torch.cat([queries, torch.tensor([said] * 2)], 1)
    model = RewardFunctionModel(reward, processing)
    return model(input_ids=ids, attention_mask=ids != processing.pad_token_id).tolist()


def test_ppo_scores_completions_with_them(policy_for):
    policy = policy_for(FAMILY)
    assert scores_of_ppo(policy, ["cat", "dog"], [exact_match_reward, format_reward]) == [1.0, 0.0]
    with pytest.raises(
        RewardError, match=r"'exact_match_reward' raised ColumnError.*row 1 of the column 'answer'"
    ):
        scores_of_ppo(policy, ["cat", {"not": "text"}], exact_match_reward)


def test_columns_survive_a_dataset():
    read = Dataset.from_list([{key: row[key] for key in ("box", "answer")} for row in rows()])
    columns = {"box": [row["box"] for row in read]}
    assert IoUReward()(["[0, 0, 50, 50]"] * 3, **columns)[:2] == [1.0, None]
