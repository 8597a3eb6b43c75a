"""The critic on the policy's own weights equals one with weights of its own, gradients included."""

import pytest
import torch
from peft import get_peft_model
from transformers import set_seed

from hf_vlm_rl import shared_critic
from tests.conformance.cases import ALL, mixture
from tests.scoring.runs import TWO, log, ppo, rows_of
from tests.trainers.runs import parameters, split_by_change

pytestmark = [pytest.mark.ppo, pytest.mark.slow]


def shaken(module, adapter: str, seed: int):
    """Give an adapter's matrices values that matter, in an order that does not depend on its name."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in module.named_parameters():
        if f".{adapter}." in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    return module


def batch(policy, family):
    processing = policy.processing_class
    rows = [processing.encode_prompt(prompt) for prompt in mixture(family)]
    ids = processing.pad(rows, return_tensors="pt")["input_ids"]
    mask = ids != processing.pad_token_id
    return {
        "input_ids": ids.masked_fill(~mask, 0),
        "attention_mask": mask,
        "position_ids": mask.cumsum(1) - mask.long(),
        "output_hidden_states": True,
    }


def both(family, policy_for, checkpointing):
    """A policy that shares its weights with a critic, and the same two models apart."""
    shared = get_peft_model(policy_for(family), policy_for(family).lora_config(r=4))
    critic = shared_critic(shared, r=4)
    shaken(shaken(shared, "default", 1), "critic", 2)
    policy = shaken(get_peft_model(policy_for(family), policy_for(family).lora_config(r=4)), "default", 1)
    value = shaken(get_peft_model(policy_for(family), policy_for(family).lora_config(r=4)), "default", 2)
    torch.nn.init.normal_(critic.score.weight, generator=torch.Generator().manual_seed(3))
    for model in (shared, policy, value):
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
    return shared, critic, policy, value


def gradients(module, adapter: str) -> list[torch.Tensor]:
    return [w.grad for n, w in module.named_parameters() if f".{adapter}." in n]


@pytest.mark.parametrize(
    ("family", "checkpointing"), [*((family, False) for family in ALL), *((family, True) for family in TWO)]
)
def test_values_and_gradients_are_those_of_two_models(family, checkpointing, policy_for):
    shared, critic, policy, value = both(family, policy_for, checkpointing)
    inputs = batch(policy, family)
    seen = inputs["attention_mask"]  # padding has no values worth comparing
    for _ in range(2):  # the second time with what the first one and a reference forward left behind
        with shared.disable_adapter(), torch.no_grad():
            shared(**inputs)
        values = critic.score(critic.backbone(**inputs).hidden_states[-1])[seen]
        logits = shared(**inputs).logits[seen]
        hidden = value.get_base_model().base_model(**inputs).last_hidden_state[seen]
        expected_values = hidden @ critic.score.weight.T
        expected = policy(**inputs).logits[seen]
        torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)
        torch.testing.assert_close(values, expected_values, atol=5e-5, rtol=2e-5)
        of_policy = policy.get_base_model().base_model(**inputs).last_hidden_state[seen]
        assert (hidden - of_policy).abs().max() > 1e-3

        weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)) * (logits > -1e3)
        (values.square().sum() + (logits * weights).sum()).backward()
        (expected_values.square().sum() + (expected * weights).sum()).backward()
    for own, other, adapter in ((shared, policy, "default"), (shared, value, "critic")):
        found, wanted = gradients(own, adapter), gradients(other, "default")
        assert found
        scale = max(grad.abs().max() for grad in wanted)
        for grad, wish in zip(found, wanted, strict=True):
            assert (grad - wish).abs().max() < 1e-4 * scale
    assert shared.active_adapters == ["default"]


@pytest.mark.parametrize("family", ALL)
def test_ppo_trains_policy_and_critic_and_nothing_else(family, policy_for, tmp_path):
    policy = get_peft_model(policy_for(family), policy_for(family).lora_config(r=4))
    critic = shared_critic(policy, r=4)
    trainer = ppo(policy, rows_of(policy, family), critic, tmp_path, learning_rate=1e-2)
    before = parameters(trainer.model)
    trainer.train()
    still, moved = split_by_change(trainer.model, before)
    changed = {
        name for name, value in trainer.model.named_parameters() if not torch.equal(value, before[name])
    }
    assert changed == {n for n in before if "lora" in n or "score" in n}
    assert moved == set()
    assert still == set()
    kl = log(trainer, "objective/kl")
    assert abs(kl[0]) < 1e-5
    assert abs(kl[1]) > 1e-4


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_ppo_learns_what_it_learns_with_a_critic_apart(family, checkpointing, policy_for, tmp_path):
    from hf_vlm_rl.scoring.critic import _Head

    class Apart(torch.nn.Module):
        base_model_prefix = "backbone"

        def __init__(self, peft):
            super().__init__()
            self.peft = peft
            self.backbone = peft.get_base_model().base_model
            self.score = _Head(peft.config.get_text_config().hidden_size, 1, bias=False)
            torch.nn.init.zeros_(self.score.weight)

    shared, critic, policy, value = both(family, policy_for, checkpointing)
    torch.nn.init.zeros_(critic.score.weight)
    logs = []
    for model, value_model in ((shared, critic), (policy, Apart(value))):
        set_seed(5)
        trainer = ppo(model, rows_of(model, family), value_model, tmp_path, num_ppo_epochs=3)
        trainer.train()
        logs.append([entry | {"eps": 0} for entry in trainer.state.log_history])
    for ours, apart in zip(*logs, strict=True):
        assert ours == pytest.approx(apart, rel=1e-3, abs=1e-4)


def test_it_adds_an_adapter_and_a_head_and_no_second_model(policy_for):
    policy = get_peft_model(policy_for("internvl"), policy_for("internvl").lora_config(r=4))
    before = sum(p.nbytes for p in policy.parameters())
    critic = shared_critic(policy, r=4)
    added = sum(p.nbytes for p in policy.parameters()) + sum(p.nbytes for p in critic.parameters()) - before
    adapter = sum(p.nbytes for n, p in policy.named_parameters() if ".default." in n)
    assert added == adapter + critic.score.weight.nbytes
    assert list(critic.state_dict()) == ["score.weight"]


def test_what_cannot_be_shared_is_refused(policy_for):
    policy = policy_for("internvl")
    with pytest.raises(TypeError, match="Expected get_peft_model"):
        shared_critic(policy)
    wrapped = get_peft_model(policy, policy.lora_config(r=4))
    next(policy.get_submodule(policy.family.projector[0]).parameters()).requires_grad_(True)
    with pytest.raises(ValueError, match="trains 1 tensors that are no adapter"):
        shared_critic(wrapped)
    policy.get_submodule(policy.family.projector[0]).requires_grad_(False)
    shared_critic(wrapped)
    with pytest.raises(ValueError, match="adapter 'critic' already"):
        shared_critic(wrapped)


MORE = [{"modules_to_save": ["projector"]}, {"target": ["embed_tokens", "q_proj"]}]


@pytest.mark.parametrize("fields", MORE, ids=["whole", "table"])
def test_all_that_the_critic_adds_is_trained_and_counts(fields, policy_for):
    policy = policy_for("internvl")
    shared = get_peft_model(policy, policy.lora_config(r=4))
    critic = shared_critic(shared, r=4, name="model", **fields)  # a name that paths of the base have, too
    added = {n: w for n, w in shared.named_parameters() if w.requires_grad and ".default" not in n}
    assert added
    assert all(".model" in name and ("lora_" in name or "modules_to_save" in name) for name in added)
    torch.nn.init.normal_(critic.score.weight)
    for name, weight in added.items():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.1)
    inputs = batch(policy, "internvl")
    values = critic(**inputs)
    values.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in added.values())
