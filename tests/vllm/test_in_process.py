"""Trainers that know nothing but ids, with vLLM in their process, which reads the tickets in them."""

import pytest
from trl.trainer import grpo_trainer, rloo_trainer

from hf_vlm_rl import AutoVLMPolicy, ImageError, UnsupportedModelError
from hf_vlm_rl.vllm import read_tickets
from tests.trainers.runs import flat, grpo, mixture, rloo
from tests.vllm.fake import FakeColocate
from tests.vllm.looking import OWN_TOKENS, TURN, TURNS, always_calls, photo_of

pytestmark = pytest.mark.trl

DIFFERENCE = "sampling/sampling_logp_difference/max"


@pytest.fixture
def with_ids(monkeypatch, tmp_path):
    """`with_ids(policy, family, **options)`: a trainer with `policy.tokenizer` and the stand-in for vLLM."""
    for module in (grpo_trainer, rloo_trainer):
        monkeypatch.setattr(module, "VLLMGeneration", FakeColocate)

    def trainer(policy, family="qwen2_5_vl", run=grpo, **options):
        rows = [policy.tokenizer.with_tickets(row) for row in mixture(family)]
        defaults = {"use_vllm": True, "vllm_mode": "colocate", "processing_class": policy.tokenizer}
        batch = {"per_device_train_batch_size": 6, "steps_per_generation": 1}
        return run(policy, rows, tmp_path, **defaults | batch | options)

    return trainer


@pytest.mark.parametrize("family", ["qwen2_5_vl", "internvl", "idefics3"])
def test_three_steps_score_what_was_sampled(family, policy_for, with_ids):
    policy = policy_for(family)
    trainer = with_ids(policy, family, peft=policy.lora_config(r=4, target="all"))
    read_tickets(trainer, compare_every=1)
    trainer.train()
    differences = flat(trainer, DIFFERENCE)
    assert len(differences) == 3
    assert max(differences) < 1e-4
    asked = trainer.vllm_generation.requests
    images = [len(each.get("multi_modal_data", {}).get("image", [])) for each in asked]
    assert sorted(images) == [0] * 6 + [1] * 6 + [2] * 6


def test_images_of_tools(checkpoint, with_ids, monkeypatch):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), dtype="float32")
    always_calls(policy, monkeypatch)
    photo = photo_of(policy.tokenizer)
    trainer = with_ids(policy, environment_factory=photo, generation_kwargs=TURN, **TURNS)
    read_tickets(trainer, compare_every=1)
    trainer.train()
    assert flat(trainer, "tools/call_frequency") == [2.0] * 3
    assert flat(trainer, "completions/max_length") == [OWN_TOKENS] * 3
    assert max(flat(trainer, DIFFERENCE)) < 1e-4


def test_a_second_call_is_refused(policy_for, with_ids):
    trainer = with_ids(policy_for("qwen2_5_vl"))
    read_tickets(trainer)
    with pytest.raises(ValueError, match="reads tickets already"):
        read_tickets(trainer)


def test_rloo(policy_for, with_ids):
    policy = policy_for("internvl")
    trainer = with_ids(policy, "internvl", rloo, peft=policy.lora_config(r=4))
    read_tickets(trainer, compare_every=1)
    trainer.train()
    assert trainer.state.global_step == 3


def test_weights_that_vllm_no_longer_gets_are_noticed(policy_for, with_ids):
    policy = policy_for("qwen2_5_vl")
    trainer = with_ids(policy, peft=policy.lora_config(r=4))
    read_tickets(trainer)
    engine, sync = trainer.vllm_generation, trainer.vllm_generation.sync_weights
    engine.sync_weights = lambda: engine.llm.reset_prefix_cache() if engine.synchronized else sync()
    with pytest.raises(UnsupportedModelError, match="did not get the weights of the last update"):
        trainer.train()
    assert trainer.state.global_step == 1


def test_another_prompt_than_the_policys_is_refused(policy_for, with_ids, monkeypatch):
    trainer = with_ids(policy_for("qwen2_5_vl"))
    expanded = FakeColocate.expanded
    monkeypatch.setattr(FakeColocate, "expanded", lambda *given: [5, *expanded(*given)])
    monkeypatch.setattr(FakeColocate, "sample", lambda *_: ([7], [[-1.0]], [[7]]))
    read_tickets(trainer)
    with pytest.raises(ImageError, match="Row 0: vLLM saw another prompt than the policy"):
        trainer.train()


def test_a_prompt_that_is_too_long(policy_for, with_ids):
    trainer = with_ids(policy_for("qwen2_5_vl"), vllm_max_model_length=30)
    read_tickets(trainer)
    with pytest.raises(ImageError, match=r"^Row \d: the prompt has .* vllm_max_model_length"):
        trainer.train()


def test_without_it_tickets_are_refused(policy_for, with_ids):
    with pytest.raises(ValueError, match=r"got no server.*read_tickets\(trainer\)"):
        with_ids(policy_for("qwen2_5_vl")).train()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"use_vllm": False}, ValueError, "a GRPOTrainer without a vLLM .* in its process"),
        ({"compare_every": 0}, ValueError, "Got compare_every=0"),
        ({"processing_class": None}, TypeError, "Expected processing_class=policy.tokenizer"),
    ],
)
def test_settings_that_make_no_sense(options, error, message, policy_for, with_ids):
    options = dict(options)
    every = options.pop("compare_every", 20)
    trainer = with_ids(policy_for("qwen2_5_vl"), **options)
    with pytest.raises(error, match=message):
        read_tickets(trainer, every)
