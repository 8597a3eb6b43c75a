"""Cards of every stock trainer: what they say is read from public attributes, in every TRL."""

import importlib.metadata
import json

import pytest
from huggingface_hub import ModelCard

from hf_vlm_rl.hub import save_adapter
from hf_vlm_rl.hub.cards.render import CURVE
from tests.hub.card_rules import problems
from tests.trainers.runs import dpo, grpo, mixture, preferences, rloo, sft
from tests.trainers.test_kto import kto

pytestmark = pytest.mark.trl

FAMILY = "internvl"


def answered():
    return [row | {"completion": row["chosen"]} for row in without(preferences(FAMILY), "rejected")]


def without(rows, *names):
    return [{key: value for key, value in row.items() if key not in names} for row in rows]


def kto_(policy, rows, out, **options):
    return kto(policy, FAMILY, out, **options)


ONLINE = {"max_steps": 2, "steps_per_generation": 1}
RUNS = {
    "grpo": (grpo, lambda: mixture(FAMILY), ONLINE | {"reward_weights": [0.5]}, "`reward` while"),
    "rloo": (rloo, lambda: mixture(FAMILY), ONLINE, "`reward` while"),
    "dpo": (dpo, lambda: preferences(FAMILY), {}, "`rewards/margins` while"),
    "kto": (kto_, lambda: mixture(FAMILY), {}, "` while training"),
    "sft": (sft, lambda: without(answered(), "chosen"), {}, "`mean_token_accuracy` while"),
}


@pytest.mark.parametrize("method", RUNS)
def test_the_card_of_a_run_says_what_was_run(method, policy_for, tmp_path):
    make, rows, options, curve = RUNS[method]
    policy, rows = policy_for(FAMILY), rows()
    trainer = make(policy, rows, tmp_path / "run", **options, peft=policy.lora_config(r=4))
    trainer.train()
    save_adapter(trainer, tmp_path / "adapter", base_model="org/tiny")
    content = (tmp_path / "adapter" / "README.md").read_text()
    assert problems(content) == []
    card = ModelCard(content)
    assert card.data.tags == ["trl", method, "lora", "conversational", "hf-vlm-rl"]
    assert f"the stock `{type(trainer).__name__}`" in card.text
    assert f"{len(rows)} rows for training" in card.text
    assert "2 optimiser steps" in card.text
    assert f"trl {importlib.metadata.version('trl')}" in card.text
    assert curve in card.text
    assert (tmp_path / "adapter" / CURVE).exists()
    assert json.loads((tmp_path / "adapter" / "training_args.json").read_text())["learning_rate"] == 1e-2
    if method in ("grpo", "rloo"):
        assert f"| `by_ids` | {options.get('reward_weights', [1])[0]} |" in card.text


def test_the_reference_adapter_of_a_trainer_is_not_saved(policy_for, tmp_path):
    # A PeftModel in, a copy "ref" of its adapter beside it.
    from peft import get_peft_model

    policy = policy_for(FAMILY)
    model = get_peft_model(policy, policy.lora_config(r=4))
    trainer = dpo(model, preferences(FAMILY), tmp_path / "run", processing_class=policy.processing_class)
    saved = save_adapter(trainer, tmp_path / "adapter", base_model="org/tiny")
    assert {path.parent for path in saved} == {tmp_path / "adapter"}
    assert not (tmp_path / "adapter" / "ref").exists()
