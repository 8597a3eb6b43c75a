"""Rows that must not be trained on: each is refused, with its row, before any weight changes."""

import pytest
import torch
from datasets import Dataset

from hf_vlm_rl import AutoVLMPolicy, ImageStore, TicketError
from tests.conformance.cases import one_image, user
from tests.images import photo
from tests.scoring.runs import ppo, rows_of
from tests.trainers.runs import parameters

pytestmark = pytest.mark.ppo


def refused(trainer, told: str) -> None:
    before = parameters(trainer.model)
    with pytest.raises((TicketError, ValueError), match=told):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in trainer.model.named_parameters())


def only_ids(rows: Dataset) -> Dataset:
    """Without the checksums: what is left when a user maps the rows on."""
    return rows.remove_columns("ids_checksum")


def cut(length: int):
    return lambda row: {key: row[key][length:] for key in ("input_ids", "attention_mask")}


@pytest.fixture
def policy(policy_for):
    return policy_for("internvl")


def test_images_that_are_gone(policy, value_for, checkpoint, tmp_path):
    rows = rows_of(policy, "internvl")
    empty = ImageStore(tmp_path / "empty")
    elsewhere = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32", image_store=empty)
    with_images = rows.filter(lambda row: elsewhere.processing_class.state.placeholder_id in row["input_ids"])
    with_images = Dataset.from_list([*with_images, with_images[0]])
    trainer = ppo(elsewhere, rows, value_for("internvl"), tmp_path)
    refused(
        trainer,
        refused(trainer, r"Row \d of the batch: No image for ticket \w{16} on .*empty.*HF_VLM_RL_CACHE"),
    )
    trainer = ppo(elsewhere, with_images, value_for("internvl"), tmp_path)
    refused(trainer, r"Row \d of the batch: No image for ticket \w{16} on .*HF_VLM_RL_CACHE")


@pytest.mark.parametrize("other", ["qwen2_5_vl", "llava_onevision"])
def test_rows_of_another_models_tokenizer(other, policy, policy_for, value_for, tmp_path):
    rows = rows_of(policy_for(other), other)
    rows = rows.filter(lambda row: max(row["input_ids"]) < policy.config.text_config.vocab_size)
    assert len(rows)
    rows = Dataset.from_list(list(rows) * 4).select(range(4))
    refused(ppo(policy, rows, value_for("internvl"), tmp_path), r"Row \d of the batch .*another model")
    refused(ppo(policy, only_ids(rows), value_for("internvl"), tmp_path), r"Row \d")


@pytest.mark.parametrize("checksums", [True, False])
def test_right_padding(checksums, policy, value_for, tmp_path):
    rows = rows_of(policy, "internvl")
    trainer = ppo(policy, rows if checksums else only_ids(rows), value_for("internvl"), tmp_path)
    policy.processing_class.padding_side = "right"
    try:
        refused(trainer, r"Row \d: padding follows .*padding_side is 'right'.*'left'")
    finally:
        policy.processing_class.padding_side = "left"


@pytest.mark.parametrize("length", [3, 12, 300], ids=["before", "in the ticket", "all of the image"])
def test_left_truncation(length, policy, value_for, tmp_path):
    prompt = user(
        "Which of these many words will be left when the image is gone? " * 20, photo("cat", (120, 120))
    )
    rows = Dataset.from_list([policy.processing_class.encode_prompt(prompt)] * 4).map(cut(length))
    refused(ppo(policy, rows, value_for("internvl"), tmp_path), r"Row 0 of the batch .*truncated")
    if length > 3:  # without the system's first words it is another prompt, but a whole one
        refused(ppo(policy, only_ids(rows), value_for("internvl"), tmp_path), r"Row 0")


@pytest.mark.parametrize("left", [0.3, 0.95], ids=["in the image", "after it"])
def test_right_truncation(left, policy, value_for, tmp_path):
    row = policy.processing_class.encode_prompt(one_image())
    ids = row["input_ids"][: int(left * len(row["input_ids"]))]
    rows = Dataset.from_list([row | {"input_ids": ids, "attention_mask": [1] * len(ids)}] * 4)
    refused(ppo(policy, rows, value_for("internvl"), tmp_path), r"Row 0 of the batch .*truncated")
    refused(ppo(policy, only_ids(rows), value_for("internvl"), tmp_path), r"Row 0: .*truncated")


def test_an_edited_row(policy, value_for, tmp_path):
    rows = rows_of(policy, "internvl").map(
        lambda row: {"input_ids": [*row["input_ids"][:-1], row["input_ids"][-1] - 1]}
    )
    refused(ppo(policy, rows, value_for("internvl"), tmp_path), r"Row \d of the batch .*edited")


def test_a_prompt_that_was_never_encoded(policy, value_for, tmp_path):
    ids = policy.processing_class.tokenizer("Nobody encoded this prompt.")["input_ids"]
    rows = Dataset.from_list([{"input_ids": ids}] * 4)
    refused(
        ppo(policy, rows, value_for("internvl"), tmp_path),
        r"Row 0: it has no image and begins with no prompt",
    )


def test_a_prompt_with_the_pad_token_is_refused_when_encoded(policy_for):
    processing = policy_for("internvl").processing_class
    pad = processing.pad_token
    processing.pad_token = "<|im_end|>"
    try:
        with pytest.raises(ValueError, match=r"contains '<\|im_end\|>', which is also the pad token"):
            processing.encode_prompt(one_image())
    finally:
        processing.pad_token = pad
