"""`resume_from_checkpoint`: adapters, and all weights with the policy loaded from the checkpoint."""

import math
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback, set_seed

from hf_vlm_rl import AutoVLMPolicy
from tests.trainers.runs import TWO, dpo, flat, grpo, logs, mixture, parameters, preferences, user

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
def test_all_weights_go_on_when_the_policy_is_loaded_from_the_checkpoint(family, policy_for, tmp_path):
    # transformers 5.23 resumes with `load_state_dict` on the saved names, which it only warns about
    # when they are not the model's: the weights have to come from `from_pretrained`.
    def trainer(policy):
        set_seed(5)
        return dpo(policy, preferences(family), tmp_path, ref_model=policy_for(family), **SAVING)

    whole = trainer(policy_for(family))
    whole.train()
    policy = AutoVLMPolicy.from_pretrained(checkpoint_1(tmp_path), dtype="float32")
    resumed = trainer(policy)
    resumed.train(resume_from_checkpoint=str(checkpoint_1(tmp_path)))
    assert flat(resumed, "loss", "grad_norm") == pytest.approx(flat(whole, "loss", "grad_norm"), abs=1e-4)
    after, expected = parameters(resumed.model), parameters(whole.model)
    assert all(torch.allclose(after[name], expected[name], atol=1e-5) for name in expected)


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
