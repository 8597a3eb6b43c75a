"""Videos in stock trainers: in a column of images, and in the blocks of a prompt."""

import math

import pytest
import torch
from datasets import Dataset

from hf_vlm_rl import AutoVLMRewardModel, ImageError
from tests.conformance.test_videos import VIDEO_FAMILIES
from tests.images import photo
from tests.trainers.runs import (
    PLAIN,
    TWO,
    dpo,
    grpo,
    logs,
    parameters,
    rloo,
    said,
    sft,
    split_by_change,
    user,
)
from tests.videos import encoded

pytest.importorskip("av", reason="the extra `video` is not installed")
pytestmark = pytest.mark.trl

RATE = 2.0


@pytest.fixture
def clip(tmp_path):
    """`clip(name)`: the path of a clip of three seconds."""

    def make(name):
        path = tmp_path / f"{name}.mp4"
        path.write_bytes(encoded(name))
        return str(path)

    return make


def entry(video=None, image=None) -> dict:
    """An entry of a column of images and videos, as Arrow holds it: each with the fields of both."""
    return {"video": video, "fps": None if video is None else RATE, "image": image}


def rows(clip, tmp_path) -> list[dict]:
    """A video; a video and an image; and an image alone."""
    picture = str(tmp_path / "cat.png")
    photo("cat", (112, 112)).save(picture)
    return [
        {"prompt": user("What moves?"), "images": [entry(clip("astronaut"))]},
        {"prompt": user("Compare them."), "images": [entry(clip("coffee")), entry(image=picture)]},
        {"prompt": user("What is it?"), "images": [entry(image=picture)]},
    ]


def blocks(clip) -> list[dict]:
    """Videos in blocks of the prompt, without a column: TRL knows none for them."""
    question = {"type": "text", "text": "What moves?"}
    return [
        {
            "prompt": [
                {"role": "user", "content": [{"type": "video", "video": clip(name), "fps": RATE}, question]}
            ]
        }
        for name in ("astronaut", "coffee", "rocket")
    ]


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_grpo_trains_on_videos_in_the_column_of_images(family, policy_for, clip, tmp_path):
    policy = policy_for(family)
    trainer = grpo(policy, rows(clip, tmp_path), tmp_path, peft=policy.lora_config(r=4), beta=0.1)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    values = logs(trainer, "loss", "kl", "grad_norm")
    assert all(math.isfinite(value) for step in values for value in step)
    assert abs(values[0][1]) < 1e-6
    # Two clips and a picture, in three steps of rollout, reference and update.
    assert policy.sharing_report()["images_encoded"] == 3


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_grpo_trains_on_videos_in_blocks(family, policy_for, clip, tmp_path):
    policy = policy_for(family)
    trainer = grpo(policy, blocks(clip), tmp_path, peft=policy.lora_config(r=4), beta=0.1)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    values = logs(trainer, "loss", "kl", "grad_norm")
    assert all(math.isfinite(value) for step in values for value in step)
    assert abs(values[0][1]) < 1e-6
    assert policy.sharing_report()["images_encoded"] == 3


@pytest.mark.parametrize("family", TWO)
def test_videos_stay_with_their_rows_when_micro_batches_are_shuffled(family, policy_for, clip, tmp_path):
    # As for images: nothing is learned, so the divergence is not 0 where a row got another row's clip.
    policy = policy_for(family)
    same = [{"prompt": user("What is it?"), "images": [entry(clip(name))]} for name in ("cat", "rocket")]
    both = {"prompt": user("Compare them."), "images": [entry(clip("coffee")), entry(clip("astronaut"))]}
    options = {"peft": policy.lora_config(r=4), "beta": 0.1, "learning_rate": 0.0}
    trainer = grpo(policy, [same[0], both, same[1]], tmp_path, **options)
    trainer.train()
    assert [kl for (kl,) in logs(trainer, "kl")] == pytest.approx([0.0] * 3, abs=1e-6)


@pytest.mark.parametrize("family", TWO)
def test_rloo_trains_on_videos(family, policy_for, clip, tmp_path):
    policy = policy_for(family)
    trainer = rloo(policy, rows(clip, tmp_path), tmp_path, peft=policy.lora_config(r=4))
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())


def preferences(clip, tmp_path) -> list[dict]:
    answers = [("A woman.", "A dog."), ("A cup.", "Nothing."), ("A cat.", "No.")]
    return [
        row | {"chosen": said(good), "rejected": said(bad)}
        for row, (good, bad) in zip(rows(clip, tmp_path), answers, strict=True)
    ]


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_dpo_learns_from_a_loss_of_log_two(family, policy_for, clip, tmp_path):
    policy = policy_for(family)
    trainer = dpo(policy, preferences(clip, tmp_path), tmp_path, peft=policy.lora_config(r=4))
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    (loss, margin), (_, later) = logs(trainer, "loss", "rewards/margins")
    # TRL adds the loss of the router of a model with experts.
    if family != "qwen3_vl_moe":
        assert loss == pytest.approx(math.log(2), abs=1e-5)
    assert margin == pytest.approx(0, abs=1e-5)
    assert later > 0


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_sft_sees_the_clip(family, policy_for, clip, tmp_path):
    def losses(swap):
        policy = policy_for(family)
        data = rows(clip, tmp_path)
        if swap:
            data[0]["images"] = [entry(clip("rocket"))]
        data = [row | {"completion": said("A woman moves.")} for row in data]
        trainer = sft(policy, data, tmp_path, peft=policy.lora_config(r=4))
        before = parameters(trainer.model)
        trainer.train()
        assert split_by_change(trainer.model, before) == (set(), set())
        return [loss for (loss,) in logs(trainer, "loss")]

    torch.manual_seed(0)
    one = losses(False)
    torch.manual_seed(0)
    other = losses(True)
    assert one[0] != other[0]
    assert all(map(math.isfinite, one))


def test_videos_that_a_trainer_drops_are_missed(policy_for, clip, tmp_path):
    # SFT's collator renders blocks to text and looks at the column of images alone.
    policy = policy_for("qwen2_5_vl")
    data = [row | {"completion": said("A woman."), "images": []} for row in blocks(clip)]
    with pytest.raises((ImageError, ValueError), match=r"video"):
        sft(policy, data, tmp_path, peft=policy.lora_config(r=4)).train()


@pytest.mark.parametrize("family", TWO)
def test_kto_trains_on_videos(family, policy_for, clip, tmp_path):
    from trl import KTOConfig, KTOTrainer

    policy = policy_for(family)
    answers = [("A woman.", True), ("Nothing.", False), ("A cat.", True)]
    data = [
        row | {"completion": said(text), "label": label}
        for row, (text, label) in zip(rows(clip, tmp_path), answers, strict=True)
    ]
    options = PLAIN | {"per_device_train_batch_size": 3, "max_steps": 2, "max_length": None}
    trainer = KTOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        args=KTOConfig(output_dir=str(tmp_path), **options),
        train_dataset=Dataset.from_list(data),
        peft_config=policy.lora_config(r=4),
    )
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())


@pytest.mark.parametrize("family", TWO)
@pytest.mark.filterwarnings("ignore:.*head")
def test_reward_models_see_the_clip(family, checkpoint, clip, tmp_path):
    model = AutoVLMRewardModel.from_pretrained(checkpoint(family), dtype="float32").eval()
    processing = model.processing_class
    scores = []
    for name in ("astronaut", "coffee"):
        messages = [*user("What moves?"), *said("A woman.")]
        row = processing.encode_prompt(messages, videos=[{"video": clip(name), "fps": RATE}])
        ids = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            scores.append(float(model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits))
    assert scores[0] != scores[1]
