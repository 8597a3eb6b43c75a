"""GRPO with `vllm_rollout`: what vLLM is sent, and that its log-probs are the policy's."""

import functools

import pytest
import torch

from hf_vlm_rl.errors import ImageError, UnsupportedModelError
from hf_vlm_rl.families.tiny import FAMILIES
from hf_vlm_rl.vllm import vllm_rollout
from tests.trainers.runs import IMAGE_NEEDED, flat, mixture, user, woman

pytestmark = pytest.mark.trl

SERVED = [family for family in FAMILIES if family not in IMAGE_NEEDED]
RATIO = ("sampling/importance_sampling_ratio/mean", "sampling/sampling_logp_difference/max")


def health(trainer) -> tuple[float, float]:
    """The farthest mean importance ratio from 1, and the largest difference of log-probs, of all steps."""
    ratios, differences = flat(trainer, RATIO[0]), flat(trainer, RATIO[1])
    assert len(ratios) == trainer.state.global_step > 0
    return max(abs(ratio - 1) for ratio in ratios), max(differences)


@pytest.mark.parametrize("weights", ["lora", "lora on all parts", "full"])
@pytest.mark.parametrize("family", SERVED)
def test_three_steps_score_what_was_sampled(family, weights, policy_for, with_vllm):
    """Rows with one image, two and none; float32 on both sides, so only rounding is left."""
    policy = policy_for(family)
    target = {"lora": "language", "lora on all parts": "all"}.get(weights)
    peft = policy.lora_config(r=4, target=target) if target else None
    trainer = with_vllm(policy, mixture(family), peft=peft, learning_rate=1e-2 if peft else 1e-3)
    trainer.train()
    ratio, difference = health(trainer)
    assert ratio < 1e-4
    assert difference < 1e-4


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_log_probs_count_the_placeholders_that_were_forbidden(temperature, policy_for, with_vllm):
    policy = policy_for("qwen2_5_vl")
    with torch.no_grad():  # logits of placeholders far from zero, and often large
        policy.get_output_embeddings().weight[list(policy.placeholder_ids)] *= 5.0
    trainer = with_vllm(
        policy, mixture("qwen2_5_vl"), temperature=temperature, learning_rate=0.0, max_steps=1
    )
    trainer.train()
    ratio, difference = health(trainer)
    assert ratio < 1e-4
    assert difference < 1e-4


def test_unaccounted_they_would_be_off(policy_for, with_vllm, monkeypatch):
    """The test above can fail: the ratio is one minus the placeholders' probability otherwise."""
    monkeypatch.setattr("hf_vlm_rl.front.placeholders.math.log1p", lambda odds: 0.0)
    monkeypatch.setattr("hf_vlm_rl.front.agreement.MOST_FLOAT32", 1.0)  # else the first rollout is refused
    policy = policy_for("qwen2_5_vl")
    with torch.no_grad():
        policy.get_output_embeddings().weight[list(policy.placeholder_ids)] *= 1.5
    trainer = with_vllm(policy, mixture("qwen2_5_vl"), learning_rate=0.0, max_steps=1)
    trainer.train()
    assert health(trainer)[0] > 0.01


@pytest.mark.parametrize("rollouts", [2, 4])
def test_weights_that_vllm_no_longer_gets_are_noticed(rollouts, policy_for, with_vllm):
    """At the first rollout both have the checkpoint's; from some rollout on vLLM keeps what it has."""
    policy = policy_for("qwen2_5_vl")
    compared = functools.partial(vllm_rollout, compare_every=3)
    trainer = with_vllm(
        policy,
        mixture("qwen2_5_vl"),
        peft=policy.lora_config(r=4),
        learning_rate=1e-2,
        rollout=compared,
        max_steps=4,
    )
    sync = trainer.vllm_generation.sync_weights
    engine = trainer.vllm_generation

    def synchronize():
        if engine.synchronized < rollouts - 1:
            return sync()
        engine.synchronized += 1

    engine.sync_weights = synchronize
    with pytest.raises(UnsupportedModelError, match="did not get the weights of the last update"):
        trainer.train()
    assert trainer.state.global_step == rollouts - 1


def test_vllm_gets_one_placeholder_an_image_and_the_trainer_all(policy_for, with_vllm):
    policy = policy_for("qwen2_5_vl")
    trainer = with_vllm(policy, mixture("qwen2_5_vl"), max_steps=1)
    given = []
    rollout = trainer.rollout_func
    trainer.rollout_func = lambda prompts, trainer: given.append(rollout(prompts, trainer)) or given[-1]
    trainer.train()
    ((prompts, images, _),) = trainer.vllm_generation.asked
    placeholder = policy.processing_class.state.placeholder_id
    counts = [len(row or ()) for row in images]
    assert sorted(counts) == [0, 0, 1, 1, 2, 2]
    assert [ids.count(placeholder) for ids in prompts] == counts
    expanded = [ids.count(placeholder) for ids in given[0]["prompt_ids"]]
    assert all(many > 10 * count for many, count in zip(expanded, counts, strict=True) if count)
    assert [not many for many in expanded] == [not count for count in counts]


def test_the_encoder_cache_is_dropped_for_every_rollout(policy_for, with_vllm):
    trainer = with_vllm(policy_for("internvl"), mixture("internvl"), max_steps=2)
    trainer.train()  # the stand-in fails where features of older weights are left
    assert trainer.vllm_generation.synchronized == 2


def test_the_users_arguments_are_kept_and_left_as_they_were(policy_for, with_vllm):
    given = {"logit_bias": {"30": 2.0}, "seed": 1}
    trainer = with_vllm(policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"), generation_kwargs=given, max_steps=1)
    trainer.train()
    ((_, _, arguments),) = trainer.vllm_generation.asked
    assert arguments["logit_bias"][30] == 2.0
    assert arguments["seed"] == 1
    assert trainer.vllm_generation.generation_kwargs == given


def test_text_alone_has_no_images(policy_for, with_vllm):
    rows = 3 * [{"prompt": user("Say hello to the user.")}]
    trainer = with_vllm(policy_for("qwen2_5_vl"), rows, max_steps=1)
    trainer.train()
    assert health(trainer)[1] < 1e-4


def test_evaluation_asks_vllm_too(policy_for, with_vllm):
    rows = [{"prompt": user("What is it?"), "images": [woman()]}]
    trainer = with_vllm(
        policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"), eval_rows=rows, per_device_eval_batch_size=2
    )
    metrics = trainer.evaluate()
    assert len(trainer.vllm_generation.asked) == 1
    assert metrics["eval_sampling/sampling_logp_difference/max"] < 1e-4


def test_image_options_of_the_policy_reach_vllm(policy_for, checkpoint, with_vllm):
    """With other sizes an image has other tokens than the checkpoint's processor gives it."""
    from hf_vlm_rl import AutoVLMPolicy

    area = 28 * 28
    policy = AutoVLMPolicy.from_pretrained(
        checkpoint("qwen2_5_vl"), dtype="float32", min_pixels=4 * area, max_pixels=9 * area
    )
    trainer = with_vllm(policy, mixture("qwen2_5_vl"), max_steps=1)
    trainer.train()
    config = trainer.vllm_generation.llm.llm_engine.model_config.multimodal_config
    assert config.mm_processor_kwargs["size"] == {"shortest_edge": 4 * area, "longest_edge": 9 * area}
    assert health(trainer)[1] < 1e-4


def test_nothing_is_told_where_the_policy_has_the_checkpoints_options(policy_for, with_vllm):
    trainer = with_vllm(policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"), max_steps=1)
    trainer.train()
    assert trainer.vllm_generation.llm.llm_engine.model_config.multimodal_config.mm_processor_kwargs is None


def test_two_runs_with_one_seed_are_one(policy_for, with_vllm):
    def weights():
        policy = policy_for("internvl")
        torch.manual_seed(0)
        with_vllm(policy, mixture("internvl"), max_steps=1).train()
        return policy.state_dict()

    first, second = weights(), weights()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_options_of_single_images_are_refused(policy_for, with_vllm):
    blocks = [{"type": "image", "max_num": 2}, {"type": "image"}, {"type": "text", "text": "Compare."}]
    rows = [{"prompt": [{"role": "user", "content": blocks}], "images": [woman(), woman()]}]
    with pytest.raises(ImageError, match=r"Row \d.*an image has the options .'max_patches': 2"):
        with_vllm(policy_for("internvl"), rows * 3, max_steps=1).train()
