"""Stock trainers on classes without a written row: a few steps of GRPO, DPO and SFT each, with LoRA.

`make test` runs them for some newer classes on every TRL lane, `make test-families` for all on one.
"""

import math
import os
from importlib.metadata import version

import pytest
from packaging.version import Version

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import FAMILIES
from tests.conformance.every import CLAIMED, NEWER, STOCK_DIFFERS, TEXT_APART, WITHOUT_ROUTER_LOSS
from tests.trainers.runs import (
    cat,
    cup,
    dpo,
    grpo,
    logs,
    parameters,
    said,
    sft,
    split_by_change,
    user,
    woman,
)

pytestmark = [pytest.mark.trl, pytest.mark.each_class, pytest.mark.slow]

ALL = os.environ.get("HF_VLM_RL_CLASSES") == "all"
CLASSES = tuple(name for name in CLAIMED if name not in FAMILIES) if ALL else NEWER

# A model with a head is their only backbone.
WITHOUT_BACKBONE = ("llama4", "nemotron_h_omni")

# Its image word has an embedding and no logit, which stock DPO asks for.
WITHOUT_LOGIT = ("mllama",)

# Layers whose result is a choice, or whose weight their model reads by itself in training mode.
UNTRAINABLE = ("expert", "indexer", "correction_coefs")

# In training mode, these give an image other features each time, or in other company.
RANDOM = {
    "fast_vlm": "batch normalisation in the tower",
    "gemma3n": "batch normalisation in the tower",
    "granite4_vision": "dropout in the projector",
    "qianfan_ocr": "dropped paths in the tower",
}

every = pytest.mark.parametrize("model_type", CLASSES)


@pytest.fixture
def policy(model_type, checkpoint):
    if model_type in WITHOUT_BACKBONE and Version(version("trl")) >= Version("1.15"):
        pytest.skip("TRL >= 1.15 reads hidden states of a backbone without a head, of the stock model too")
    return AutoVLMPolicy.from_pretrained(checkpoint(model_type), dtype="float32")


def prompts(policy) -> list[dict]:
    """One image, two images and, where the native processor takes it, none."""
    family = policy.family
    last = [cat()] if family.needs_image or family.model_type in TEXT_APART else []
    return [
        {"prompt": user("What is it?"), "images": [woman()]},
        {"prompt": user("Compare them."), "images": [cup(), cat()]},
        {"prompt": user("Say hello to the user."), "images": last},
    ]


def options_of(model_type: str) -> dict:
    """Stock trainers ask models with experts for a router loss; some stock models cannot compute one."""
    return {"router_aux_loss_coef": 0.0} if model_type in WITHOUT_ROUTER_LOSS else {}


def sft_options_of(model_type: str) -> dict:
    """Stock SFT reads hidden states of a backbone in chunks, unless told otherwise."""
    return options_of(model_type) | ({"loss_type": "nll"} if model_type in WITHOUT_BACKBONE else {})


def check_adapters(trainer, before) -> None:
    """Every adapter that was reached has moved, and nothing else has."""
    still, moved_frozen = split_by_change(trainer.model, before)
    assert moved_frozen == set()
    # Nor has an expert a gradient that no token was sent to.
    assert {name for name in still if not any(word in name for word in UNTRAINABLE)} == set()


@every
def test_grpo(policy, model_type, tmp_path):
    trainer = grpo(
        policy,
        prompts(policy),
        tmp_path,
        peft=policy.lora_config(r=4),
        beta=0.1,
        **options_of(model_type),
    )
    before = parameters(trainer.model)
    trainer.train()
    check_adapters(trainer, before)
    (_, kl, _), *later = logs(trainer, "loss", "kl", "grad_norm")
    assert all(math.isfinite(value) for step in later for value in step)
    if model_type not in STOCK_DIFFERS | RANDOM:
        # Rollout, reference and update saw the same rows: with nothing learned yet, nothing differs.
        assert abs(kl) < 1e-5


@pytest.mark.parametrize("model_type", [name for name in CLASSES if name not in WITHOUT_LOGIT])
def test_dpo(policy, model_type, tmp_path):
    answers = [("A woman.", "A cup of dogs."), ("Cup and cat.", "Nothing."), ("Hello.", "No, it is not.")]
    rows = [
        row | {"chosen": said(good), "rejected": said(bad)}
        for row, (good, bad) in zip(prompts(policy), answers, strict=True)
    ]
    trainer = dpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), **options_of(model_type))
    before = parameters(trainer.model)
    trainer.train()
    check_adapters(trainer, before)
    (margin, _), (_, norm) = logs(trainer, "rewards/margins", "grad_norm")
    assert math.isfinite(norm)
    assert margin == pytest.approx(0.0, abs=1e-4)


@every
def test_sft(policy, model_type, tmp_path):
    rows = [
        {"prompt": row["prompt"], "completion": said(answer), "images": row["images"]}
        for row, answer in zip(prompts(policy), ("A woman.", "Cup and cat.", "Hello."), strict=True)
    ]
    trainer = sft(policy, rows, tmp_path, peft=policy.lora_config(r=4), **sft_options_of(model_type))
    before = parameters(trainer.model)
    trainer.train()
    check_adapters(trainer, before)
    (first, _), (second, norm) = logs(trainer, "loss", "grad_norm")
    assert second < first
    assert norm > 0
