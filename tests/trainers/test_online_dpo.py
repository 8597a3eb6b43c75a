"""OnlineDPOTrainer casts pixels to the model's dtype: tickets come through, in float32 and bfloat16."""

import math
from importlib.metadata import version

import pytest
import torch
from datasets import Dataset
from packaging.version import Version
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

from hf_vlm_rl import TicketError
from tests.trainers.runs import (
    PLAIN,
    TWO,
    by_ids,
    cat,
    cup,
    logs,
    parameters,
    split_by_change,
    square,
    user,
    woman,
)

pytestmark = pytest.mark.trl

TRL = version("trl")
takes_images = pytest.mark.skipif(
    Version(TRL) < Version("1.16"),
    reason=f"TRL {TRL}: its trainer repeats pixels as four dimensions, and reads images beside no text",
)
DTYPES = (torch.float32, torch.bfloat16)


def online_dpo(policy, images, out, **options) -> OnlineDPOTrainer:
    rows = [{"prompt": user("What is it?"), "image": image} for image in images]
    defaults = {"per_device_train_batch_size": 2, "max_steps": 2, "max_new_tokens": 5, "max_length": 512}
    return OnlineDPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=by_ids,
        args=OnlineDPOConfig(output_dir=str(out), **PLAIN | defaults | options),
        train_dataset=Dataset.from_list(rows),
        peft_config=policy.lora_config(r=4),
    )


@takes_images
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", TWO)
def test_two_steps_move_every_adapter_and_no_frozen_weight(family, dtype, policy_for, tmp_path):
    policy = policy_for(family).to(dtype)
    trainer = online_dpo(policy, [woman(), cup(), cat(), square("coffee")], tmp_path)
    assert type(trainer) is OnlineDPOTrainer
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    (loss, norm, _), (later_loss, later_norm, later_kl) = logs(trainer, "loss", "grad_norm", "objective/kl")
    # At first, the policy is its own reference. Near 0.69, numbers in bfloat16 are 0.004 apart.
    assert loss == pytest.approx(math.log(2), abs=1e-4 if dtype is torch.float32 else 2e-3)
    assert norm > 0
    assert later_norm > 0
    assert math.isfinite(later_loss)
    assert later_kl != 0
    report = policy.sharing_report()
    assert report["images_encoded"] == 4  # as tickets, each image once, however often it is repeated
    assert report["images_reused"] > 0


@takes_images
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", TWO)
def test_the_forward_of_the_update_gets_the_features_of_the_image(family, dtype, policy_for, tmp_path):
    seen = {}
    for name in ("cat", "coffee"):
        policy = policy_for(family).to(dtype)
        decoder = policy.get_submodule(policy.family.language)
        embeddings = seen.setdefault(name, [])

        def keep(module, args, kwargs, embeddings=embeddings):
            if torch.is_grad_enabled():
                embeddings.append(kwargs["inputs_embeds"].detach().clone())

        decoder.register_forward_pre_hook(keep, with_kwargs=True)
        trainer = online_dpo(policy, [square(name)] * 2, tmp_path, max_steps=1)
        trainer.train()
    prompt = min(len(embeddings[0][0]) for embeddings in seen.values()) - 5
    cat_prompt, cup_prompt = (embeddings[0][:, :prompt].float() for embeddings in seen.values())
    assert len(cat_prompt) == 4  # two completions of two rows
    assert torch.equal(cat_prompt[0], cat_prompt[3])
    assert (cat_prompt[0] - cup_prompt[0]).abs().max() > 1e-2


@takes_images
@pytest.mark.parametrize("family", TWO)
def test_other_images_give_other_log_probs(family, policy_for, tmp_path):
    chosen = []
    for name in ("cat", "coffee", "cat"):
        trainer = online_dpo(policy_for(family), [square(name)] * 2, tmp_path, max_steps=1)
        trainer.train()
        chosen.append(logs(trainer, "logps/chosen", "logps/rejected")[0])
    assert chosen[0] == chosen[2]
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize("cells", [lambda image: [image], lambda image: [image, cat()]], ids=["one", "two"])
def test_a_column_that_it_does_not_read_is_refused(cells, policy_for, tmp_path):
    # It reads `image`; with `images` it would ask about images that nobody sees.
    policy = policy_for("qwen2_5_vl")
    trainer = online_dpo(policy, [woman(), cup()], tmp_path)
    trainer.train_dataset = Dataset.from_list(
        [{"prompt": user("What is it?"), "images": cells(image)} for image in (woman(), cup())]
    )
    with pytest.raises(ValueError, match=r"batch with images in \['images'\].*policy\.tokenizer"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.skipif(
    Version(TRL) >= Version("1.13"), reason=f"TRL {TRL}: its trainer does not repeat pixels so"
)
@pytest.mark.parametrize("family", TWO)
def test_a_trainer_that_repeats_pixels_as_four_dimensions_is_refused(family, policy_for, tmp_path):
    trainer = online_dpo(policy_for(family), [square("cat")] * 2, tmp_path, max_steps=1)
    with pytest.raises(TicketError, match=r"Got tickets of shape .*processing_class=policy\.tokenizer"):
        trainer.train()
