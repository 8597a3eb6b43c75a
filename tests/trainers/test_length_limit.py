"""What a length limit does to rows with an image, in stock TRL and here, as docs/migrate.md says."""

import math

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import ImageError
from tests.trainers.runs import dpo, logs, said, sft, user, woman

pytestmark = pytest.mark.trl

FAMILY = "qwen2_5_vl"
PROMPT = 55  # tokens, 16 of them the image's
ANSWERS = {
    "dpo": {"chosen": said("A woman."), "rejected": said("A cup.")},
    "sft": {"completion": said("No.")},
}


@pytest.fixture
def sides(policy_for, checkpoint):
    """Of the policy and of the stock model: a model, its reference, and the processing class."""
    policy, folder = policy_for(FAMILY), checkpoint(FAMILY)
    stock = [AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32) for _ in range(2)]
    return (policy, policy_for(FAMILY), policy.processing_class), (
        *stock,
        AutoProcessor.from_pretrained(folder),
    )


def trainer_of(kind, side, limit, out):
    model, reference, processing_class = side
    rows = [{"prompt": user("What is it?"), "images": [woman().resize((112, 112))]} | ANSWERS[kind]] * 3
    options = {"max_length": limit, "processing_class": processing_class}
    return (
        dpo(model, rows, out, ref_model=reference, **options)
        if kind == "dpo"
        else sft(model, rows, out, **options)
    )


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_cut_image_is_an_error_in_both_at_the_first_batch(kind, sides, tmp_path):
    errors = (ImageError, r"images.*max_length=None"), (ValueError, r"max_length. \(20\) is too short")
    for side, (error, message) in zip(sides, errors, strict=True):
        trainer = trainer_of(kind, side, 20, tmp_path)
        with pytest.raises(error, match=message):
            trainer.train()
        assert trainer.state.global_step == 0


@pytest.mark.parametrize(("kind", "loss"), [("dpo", math.log(2)), ("sft", 0.0)])
def test_a_completion_that_is_cut_away_is_silent_in_both(kind, loss, sides, tmp_path):
    for side in sides:
        trainer = trainer_of(kind, side, PROMPT, tmp_path)
        trainer.train()
        assert logs(trainer, "loss", "grad_norm")[0] == pytest.approx((loss, 0.0), abs=1e-6)
