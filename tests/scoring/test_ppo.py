"""Clause 12 for PPO: stock PPOTrainer on every family, and that its numbers are right."""

import copy
import math

import pytest
import torch
from transformers import set_seed
from trl.experimental.ppo import PPOTrainer
from trl.experimental.ppo.ppo_trainer import forward

from tests.conformance.cases import ALL, mixture, native
from tests.scoring.runs import TWO, log, ppo, rows_of, with_adapter
from tests.trainers.runs import parameters, split_by_change

pytestmark = pytest.mark.ppo


@pytest.mark.parametrize("family", ALL)
def test_two_updates_move_every_trainable_parameter(family, policy_for, value_for, tmp_path):
    # TRL's estimate of the KL may have either sign, so that with some first weights it is almost 0.
    torch.manual_seed(0)
    policy, value = policy_for(family), with_adapter(value_for(family))
    trainer = ppo(policy, rows_of(policy, family), value, tmp_path, peft=policy.lora_config(r=4))
    assert type(trainer) is PPOTrainer
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    assert len(trainer.state.log_history) == 2
    assert all(math.isfinite(value) for entry in trainer.state.log_history for value in entry.values())
    kl = log(trainer, "objective/kl")
    assert abs(kl[0]) < 1e-5
    assert abs(kl[1]) > 1e-4


@pytest.mark.parametrize("family", ALL)
def test_log_probs_while_sampling_are_those_recomputed(family, policy_for, value_for, tmp_path):
    # With nothing learned, every ratio of the update to the rollout is one, text-only row included.
    policy = policy_for(family)
    options = {"learning_rate": 0.0, "temperature": 0.7, "total_episodes": 4, "num_mini_batches": 1}
    trainer = ppo(policy, rows_of(policy, family), value_for(family), tmp_path, **options)
    trainer.train()
    (entry,) = trainer.state.log_history
    assert entry["val/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert entry["policy/approxkl_avg"] < 1e-9
    assert abs(entry["objective/kl"]) < 1e-5
    assert math.isfinite(entry["policy/entropy_avg"])


@pytest.mark.parametrize("family", ALL)
def test_ppos_forward_gives_each_row_what_the_bare_model_gives_it(
    family, policy_for, value_for, bare_for, native_processor_for
):
    # PPO passes boolean masks, zeros for padding and 2-D positions.
    policy, value, bare = policy_for(family), value_for(family), bare_for(family)
    prompts, processing = mixture(family), policy.processing_class
    ids = processing.pad([processing.encode_prompt(row) for row in prompts], return_tensors="pt")["input_ids"]
    native_processor = native_processor_for(family)
    with torch.no_grad():
        found = forward(policy, ids, processing.pad_token_id)
        values = forward(value.model, ids, processing.pad_token_id).hidden_states[-1]
        for row, prompt in enumerate(prompts):
            expected = bare(**native(native_processor, [prompt]), output_hidden_states=True)
            logits = expected.logits[0].clone()
            logits[:, list(policy.placeholder_ids)] = -1e4
            own = slice(ids.shape[1] - len(logits), None)
            torch.testing.assert_close(found.logits[row, own], logits, atol=2e-5, rtol=0)
            torch.testing.assert_close(values[row, own], expected.hidden_states[-1][0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("reference", ["copied by the trainer", "given", "adapter switched off"])
def test_every_kind_of_reference(family, reference, policy_for, value_for, tmp_path):
    policy = policy_for(family).freeze()
    options = {"peft": policy.lora_config(r=4)} if reference == "adapter switched off" else {}
    if reference == "given":
        options["ref_model"] = copy.deepcopy(policy)
    trainer = ppo(policy, rows_of(policy, family), value_for(family), tmp_path, **options)
    before = parameters(trainer.policy_model)
    trainer.train()
    assert split_by_change(trainer.policy_model, before) == (set(), set())
    kl = log(trainer, "objective/kl")
    assert abs(kl[0]) < 1e-5
    assert abs(kl[1]) > 1e-4
    if trainer.ref_model is not None:
        reference = trainer.ref_model.state_dict()
        assert all(torch.equal(reference[name], old) for name, old in before.items())


@pytest.mark.slow
@pytest.mark.parametrize("family", TWO)
def test_gradient_checkpointing_changes_nothing(family, policy_for, value_for, tmp_path):
    policy_for(family), value_for(family)  # loading them for the first time draws random numbers
    seen = []
    for checkpointing in (False, True):
        set_seed(0)
        policy, value = policy_for(family), value_for(family)
        if checkpointing:
            policy.gradient_checkpointing_enable({"use_reentrant": False})
            value.gradient_checkpointing_enable({"use_reentrant": False})
        trainer = ppo(policy, rows_of(policy, family), value, tmp_path, peft=policy.lora_config(r=4))
        trainer.train()
        seen.append([entry | {"eps": 0} for entry in trainer.state.log_history])
    for plain, checkpointed in zip(*seen, strict=True):
        assert checkpointed == pytest.approx(plain, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize(
    "options",
    [
        {"local_rollout_forward_batch_size": 1},
        {"num_mini_batches": 1, "num_ppo_epochs": 3},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "num_mini_batches": 1},
        {"kl_estimator": "k3", "kl_coef": 0.5},
        {"stop_token": "eos", "missing_eos_penalty": 1.0, "response_length": 8},
    ],
    ids=lambda options: ",".join(f"{key}={value}" for key, value in options.items()),
)
def test_options_of_the_trainer(family, options, policy_for, value_for, tmp_path):
    policy = policy_for(family)
    one_update = options | {"total_episodes": 4}
    trainer = ppo(policy, rows_of(policy, family), value_for(family), tmp_path, **one_update)
    trainer.train()
    assert all(math.isfinite(value) for entry in trainer.state.log_history for value in entry.values())
    if "local_rollout_forward_batch_size" not in options:  # there, the text-only row is a batch of its own
        assert abs(log(trainer, "objective/kl")[0]) < 1e-5


@pytest.mark.parametrize("family", TWO)
def test_placeholders_are_never_sampled(family, policy_for, value_for, tmp_path):
    policy = policy_for(family)
    with torch.no_grad():  # a policy that would sample nothing else
        head = policy.get_output_embeddings().weight
        head[list(policy.placeholder_ids)] = head.sum(0) * 0 + 100 * head.mean()
    seen = []

    def reward(completion_ids, **columns):
        seen.extend(token for ids in completion_ids for token in ids)
        return [0.0] * len(completion_ids)

    trainer = ppo(policy, rows_of(policy, family), value_for(family), tmp_path, reward=reward)
    trainer.train()
    assert len(seen) == 2 * 4 * 4
    assert not set(seen) & set(policy.placeholder_ids)
    assert abs(log(trainer, "objective/kl")[0]) < 1e-5
