"""A run on the policy logs what the same run logs on the bare model, where TRL can train that one."""

import pytest
from transformers import set_seed

from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import cat, cup, dpo, flat, grpo, said, sft, user, woman

pytestmark = pytest.mark.trl

NEEDS_IMAGES = "the stock processor refuses the text-only calls that the trainer makes"
# TRL 1.12.0 and 1.16.0 with transformers 5.23, bare model and native processor.
STOCK_GRPO_FAILS = {
    "gemma3": "TRL gets a second <bos> with the type ids, which mark tokens one place too late",
    "llava_onevision": "TypeError: TRL does not know the processor's batch_num_images",
    "mistral3": "ValueError: the processor wants padding for image_sizes in the rollout",
    "paligemma": "ValueError: the processor pads token_type_ids of unequal prompts in the rollout",
}
STOCK_PREFERENCES_FAIL = {"paligemma": NEEDS_IMAGES}


def families(failing: dict[str, str]) -> list:
    return [
        pytest.param(family, marks=pytest.mark.skip(reason=f"stock {family}: {failing[family]}"))
        if family in failing
        else family
        for family in FAMILIES
    ]


def prompts() -> list[dict]:
    return [
        {"prompt": user("Compare them."), "images": [woman(), cup()]},
        {"prompt": user("Describe the image."), "images": [cup()]},
        {"prompt": user("Say what you see."), "images": [cat()]},
    ]


@pytest.fixture
def both(policy_for, bare_for, native_processor_for):
    """`both(family)`: the policy and the bare model, with their processing classes."""

    def pair(family):
        policy, native = policy_for(family), native_processor_for(family)
        return (policy, policy.processing_class), (bare_for(family), native), policy.lora_config(r=4)

    return pair


@pytest.mark.parametrize("family", families(STOCK_GRPO_FAILS))
def test_grpo_samples_and_logs_what_the_bare_model_does(family, both, tmp_path):
    policy, bare, peft = both(family)
    seen = []
    for model, processing_class in (policy, bare):
        rewarded = []

        def reward(completion_ids, rewarded=rewarded, **columns):
            rewarded.extend(completion_ids)
            return [sum(ids) % 97 / 97 for ids in completion_ids]

        set_seed(3)
        trainer = grpo(
            model,
            prompts(),
            tmp_path,
            processing_class=processing_class,
            peft=peft,
            beta=0.1,
            reward=reward,
            # The bare model may sample placeholders.
            generation_kwargs={"suppress_tokens": list(policy[0].placeholder_ids)},
        )
        trainer.train()
        seen.append((rewarded, flat(trainer, "loss", "grad_norm", "kl", "entropy")))
    assert len(seen[0][0]) == 6
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] == pytest.approx(seen[1][1], abs=2e-4)


@pytest.mark.parametrize("family", families(STOCK_PREFERENCES_FAIL))
def test_dpo_logs_what_the_bare_model_does(family, both, tmp_path):
    policy, bare, peft = both(family)
    rows = [row | {"chosen": said("A red cup."), "rejected": said("No cat")} for row in prompts()]
    seen = []
    for model, processing_class in (policy, bare):
        set_seed(3)
        trainer = dpo(model, rows, tmp_path, processing_class=processing_class, peft=peft)
        trainer.train()
        seen.append(flat(trainer, "loss", "grad_norm", "logps/chosen", "logps/rejected"))
    assert seen[0] == pytest.approx(seen[1], rel=1e-4, abs=2e-4)


@pytest.mark.parametrize("family", families(STOCK_PREFERENCES_FAIL))
def test_sft_on_prompts_and_completions_logs_what_the_bare_model_does(family, both, tmp_path):
    policy, bare, peft = both(family)
    rows = [row | {"completion": said("A red cup.")} for row in prompts()]
    seen = []
    for model, processing_class in (policy, bare):
        set_seed(3)
        trainer = sft(model, rows, tmp_path, processing_class=processing_class, peft=peft)
        trainer.train()
        seen.append(flat(trainer, "loss", "grad_norm"))
    assert seen[0] == pytest.approx(seen[1], abs=2e-4)
    assert seen[0][2] < seen[0][0]
