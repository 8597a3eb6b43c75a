"""`resume_from_checkpoint` and `load_best_model_at_end`: adapters and all weights."""

import functools
import math
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import TrainerCallback, set_seed
from trl import SFTConfig, SFTTrainer

from hf_vlm_rl import AutoVLMPolicy
from tests.trainers.runs import PLAIN, TWO, dpo, flat, grpo, logs, mixture, parameters, preferences, user

pytestmark = pytest.mark.trl

SAVING = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2, "learning_rate": 1e-3}


class AtBegin(TrainerCallback):
    """Copies the parameters when the first resumed step is about to begin."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.parameters, self.step = parameters(model), state.global_step


def checkpoint_1(out):
    return out / "checkpoint-1"


@pytest.mark.parametrize("family", TWO)
def test_grpo_goes_on_with_the_saved_adapter(family, policy_for, tmp_path):
    def trainer():
        policy = policy_for(family)
        return grpo(policy, mixture(family), tmp_path, peft=policy.lora_config(r=4), beta=0.1, **SAVING)

    trainer().train()
    saved = load_file(checkpoint_1(tmp_path) / "adapter_model.safetensors")
    resumed, begin = trainer(), AtBegin()
    resumed.add_callback(begin)
    resumed.train(resume_from_checkpoint=str(checkpoint_1(tmp_path)))
    assert begin.step == 1
    at_begin = {name.replace(".default.", "."): value for name, value in begin.parameters.items()}
    assert any(name.endswith("lora_B.weight") and value.any() for name, value in saved.items())
    assert all(torch.equal(at_begin[name], value) for name, value in saved.items())
    assert resumed.state.global_step == 2
    assert all(math.isfinite(value) for value in logs(resumed, "loss", "grad_norm")[-1])


@pytest.mark.parametrize("family", TWO)
def test_dpo_ends_where_an_uninterrupted_run_does(family, policy_for, tmp_path):
    def trainer():
        set_seed(5)
        policy = policy_for(family)
        return dpo(policy, preferences(family), tmp_path, peft=policy.lora_config(r=4), **SAVING)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(checkpoint_1(tmp_path)))
    assert flat(resumed, "loss", "grad_norm") == pytest.approx(flat(whole, "loss", "grad_norm"), abs=1e-5)
    after, expected = parameters(resumed.model), parameters(whole.model)
    assert all(torch.allclose(after[name], expected[name], atol=1e-6) for name in expected)


# The last of these saves under the model's own names; transformers renames what the others save.
@pytest.mark.parametrize("family", [*TWO, "qwen3_vl"])
@pytest.mark.parametrize("loaded", ["base", "checkpoint"])
def test_all_weights_go_on_from_the_checkpoint(loaded, family, policy_for, tmp_path):
    def trainer(policy):
        set_seed(5)
        return dpo(policy, preferences(family), tmp_path, ref_model=policy_for(family), **SAVING)

    whole = trainer(policy_for(family))
    whole.train()
    policy = policy_for(family)
    if loaded == "checkpoint":
        policy = AutoVLMPolicy.from_pretrained(checkpoint_1(tmp_path), dtype="float32")
    resumed = trainer(policy)
    resumed.train(resume_from_checkpoint=str(checkpoint_1(tmp_path)))
    assert flat(resumed, "loss", "grad_norm") == pytest.approx(flat(whole, "loss", "grad_norm"), abs=1e-4)
    after, expected = parameters(resumed.model), parameters(whole.model)
    assert all(torch.allclose(after[name], expected[name], atol=1e-5) for name in expected)


@pytest.mark.parametrize("shard_size", ["50GB", "100KB"])
def test_the_best_of_all_weights_is_loaded_at_the_end(shard_size, policy_for, tmp_path, monkeypatch):
    policy = policy_for("internvl")
    save = type(policy).save_pretrained
    monkeypatch.setattr(
        type(policy), "save_pretrained", functools.partialmethod(save, max_shard_size=shard_size)
    )
    rows = [
        {"prompt": row["prompt"], "completion": row["chosen"], "images": row["images"]}
        for row in preferences("internvl")
    ]
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    each_step = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 3, "learning_rate": 0.1}
    dataset = Dataset.from_list(rows)
    trainer = SFTTrainer(
        model=policy,
        processing_class=policy.processing_class,
        args=SFTConfig(str(tmp_path), max_length=None, **PLAIN | SAVING | best | each_step),
        train_dataset=dataset,
        eval_dataset=dataset,
    )
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert losses[-1] - min(losses) > 0.1  # at this learning rate, the last step is a bad one
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-5)
    assert (checkpoint_1(tmp_path) / "model.safetensors.index.json").exists() == (shard_size == "100KB")


def test_a_shuffled_grpo_that_is_resumed_in_its_second_epoch_has_the_order_of_the_first(policy_for, tmp_path):
    # Stock TRL: one generator draws the orders of all epochs, and a resumed run begins it anew.
    calls: list[str] = []

    def reward(prompts: list, **columns: Any) -> list[float]:
        calls.append(prompts[0][0]["content"])
        return [0.0] * len(prompts)

    def prompts_of(**resume: str) -> list[str]:
        calls.clear()
        policy = policy_for("internvl")
        rows = [{"prompt": user(word)} for word in ("Hello", "Goodbye", "Why", "What")]
        steps = {"steps_per_generation": 1, "save_steps": 4, "max_steps": 8, "max_completion_length": 1}
        lora = policy.lora_config(r=4)
        grpo(policy, rows, tmp_path, peft=lora, reward=reward, **SAVING | steps).train(**resume)
        return list(calls)

    whole = prompts_of()
    assert whole[4:] != whole[:4]
    assert prompts_of(resume_from_checkpoint=str(tmp_path / "checkpoint-4")) == whole[:4]
