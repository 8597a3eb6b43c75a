"""RewardTrainer: pairs of conversations with their images inside the ids, on every family."""

import math
import warnings
from importlib.metadata import version

import pytest
import torch
from datasets import Dataset
from packaging.version import Version
from trl import RewardConfig, RewardTrainer

from hf_vlm_rl import AutoVLMRewardModel
from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import PLAIN, TWO, mixture, parameters, said, split_by_change, user
from tests.videos import moving

pytestmark = pytest.mark.trl


@pytest.fixture
def model_for(checkpoint):
    def load(family):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the head is new
            return AutoVLMRewardModel.from_pretrained(checkpoint(family), dtype="float32")

    return load


def pairs(processing_class, family: str) -> Dataset:
    """Rows with one image, two and none; the answer with a colour is the better one."""
    encode = processing_class.encode_prompt

    def ids(row, answer):
        return encode([*row["prompt"], *said(answer)], row["images"])["input_ids"]

    return Dataset.from_list(
        [
            {"chosen_ids": ids(row, "A red cup."), "rejected_ids": ids(row, "Nothing at all, no.")}
            for row in mixture(family)
        ]
    )


def trainer_for(model, family, out, peft=None, **options) -> RewardTrainer:
    defaults = {"per_device_train_batch_size": 3, "max_steps": 2, "max_length": None}
    return RewardTrainer(
        model=model,
        processing_class=model.processing_class,
        args=RewardConfig(output_dir=str(out), **PLAIN | defaults | options),
        train_dataset=pairs(model.processing_class, family),
        peft_config=peft,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_moves_every_trainable_parameter_and_no_frozen_one(family, model_for, tmp_path):
    model = model_for(family)
    trainer = trainer_for(model, family, tmp_path, peft=model.lora_config(r=4))
    assert type(trainer) is RewardTrainer
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))


@pytest.mark.parametrize("family", TWO)
def test_it_learns_which_answer_is_better_and_the_saved_model_knows(family, model_for, tmp_path):
    model = model_for(family)
    trainer = trainer_for(model, family, tmp_path, learning_rate=1e-3, max_steps=12)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    saved = AutoVLMRewardModel.from_pretrained(tmp_path / "saved", dtype="float32").eval()
    for row in pairs(saved.processing_class, family):
        with torch.no_grad():
            better, worse = (
                saved(input_ids=torch.tensor([row[key]])).logits.item()
                for key in ("chosen_ids", "rejected_ids")
            )
        assert better > worse


@pytest.mark.parametrize("family", TWO)
def test_the_score_depends_on_the_picture(family, model_for):
    model = model_for(family).eval()
    first, second, _ = mixture(family)
    with torch.no_grad():
        scores = [
            model(
                input_ids=torch.tensor(
                    [
                        model.processing_class.encode_prompt([*first["prompt"], *said("A cup.")], [image])[
                            "input_ids"
                        ]
                    ]
                )
            ).logits.item()
            for image in (first["images"][0], second["images"][1])
        ]
    assert scores[0] != scores[1]


def texts_with_a_column_of_images(family: str) -> Dataset:
    answers = {"chosen": "What is it? A red cup.", "rejected": "What is it? Nothing at all, no."}
    return Dataset.from_list([answers | {"images": row["images"]} for row in mixture(family)])


@pytest.mark.skipif(Version(version("trl")) < Version("1.12"), reason="TRL 1.0 fails on such rows")
@pytest.mark.parametrize("family", TWO)
def test_a_column_of_images_that_the_trainer_drops_is_refused(family, model_for, tmp_path):
    model = model_for(family)
    trainer = RewardTrainer(
        model=model,
        processing_class=model.processing_class,
        args=RewardConfig(output_dir=str(tmp_path), max_steps=20, **PLAIN),
        train_dataset=texts_with_a_column_of_images(family),
    )
    with pytest.raises(ValueError, match=r"RewardTrainer made ids of texts alone.*rows of .*encode_prompt"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_videos_inside_the_ids_of_later_rows_are_not_missed(model_for, tmp_path):
    model = model_for("qwen2_5_vl")
    encode = model.processing_class.encode_prompt
    video = {"video": list(moving("cat")), "video_metadata": {"fps": 2.0}}

    def pair(**media):
        answers = {"chosen_ids": "A cat.", "rejected_ids": "Nothing."}
        return {
            name: encode([*user("What moves?"), *said(answer)], **media)["input_ids"]
            for name, answer in answers.items()
        }

    options = {"per_device_train_batch_size": 1, "max_steps": 2, "train_sampling_strategy": "sequential"}
    rows = [pair() | {"images": []}, pair(videos=[video]) | {"images": ["clip.mp4"]}]
    trainer = RewardTrainer(
        model=model,
        processing_class=model.processing_class,
        args=RewardConfig(output_dir=str(tmp_path), **PLAIN | options),
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    assert trainer.state.global_step == 2


@pytest.mark.parametrize("family", TWO)
def test_images_that_arrive_and_batches_that_train_nothing_are_not_told(family, model_for, tmp_path):
    model = model_for(family)
    ids = torch.tensor([[5, 6, 7]])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*have no image")
        with torch.no_grad():
            model.train()
            for _ in range(20):
                model(input_ids=ids)
        trainer_for(model, family, tmp_path, max_steps=20).train()
        for _ in range(20):
            model(input_ids=ids)
