"""Images inside the messages: trained on where TRL passes them on, an error where it drops them."""

import pytest
from transformers import set_seed

from hf_vlm_rl import ImageError, TicketError
from tests.trainers.runs import TWO, cat, cup, dpo, grpo, logs, mixture, rloo, said, user, woman

pytestmark = pytest.mark.trl


def turn(text: str, *images) -> list[dict]:
    blocks = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": text}]}]


def in_blocks() -> list[dict]:
    return [
        {"prompt": turn("What is it?", woman())},
        {"prompt": turn("Compare them.", cup(), cat())},
        {"prompt": turn("Say hello.")},
    ]


def in_columns() -> list[dict]:
    return [
        {"prompt": user("What is it?"), "images": [woman()]},
        {"prompt": user("Compare them."), "images": [cup(), cat()]},
        {"prompt": user("Say hello."), "images": []},
    ]


@pytest.mark.parametrize("family", TWO)
def test_grpo_trains_on_blocks_as_on_a_column(family, policy_for, tmp_path):
    seen = []
    for rows in (in_blocks(), in_columns()):
        policy = policy_for(family)
        set_seed(5)
        trainer = grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), beta=0.1)
        trainer.train()
        seen.append(logs(trainer, "loss", "grad_norm", "kl", "entropy"))
    assert len(seen[0]) == 3
    assert seen[0] == seen[1]


@pytest.mark.parametrize("family", TWO)
def test_datasets_gives_the_images_of_blocks_as_bytes(family, policy_for, tmp_path):
    # What the test above relies on: these are not PIL images any more.
    policy = policy_for(family)
    trainer = grpo(policy, in_blocks(), tmp_path, peft=policy.lora_config(r=4))
    block = trainer.train_dataset[0]["prompt"][0]["content"][0]
    assert block["image"]["bytes"].startswith(b"\x89PNG")


@pytest.mark.parametrize("family", TWO)
def test_rloo_trains_on_an_images_column(family, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = rloo(policy, mixture(family), tmp_path, peft=policy.lora_config(r=4), beta=0.1)
    trainer.train()
    steps = logs(trainer, "kl", "grad_norm")
    assert abs(steps[0][0]) < 1e-6
    assert all(norm > 0 for _, norm in steps)


@pytest.mark.parametrize("family", TWO)
def test_rloo_never_trains_on_blocks_without_their_images(family, policy_for, tmp_path):
    # TRL 1.12 and 1.16 pass the images of blocks to the rollout and drop them from training.
    policy = policy_for(family)
    trainer = rloo(policy, in_blocks(), tmp_path, peft=policy.lora_config(r=4))
    with pytest.raises(TicketError, match="`image`/`images` column"):
        trainer.train()


@pytest.mark.parametrize("family", TWO)
def test_dpo_never_trains_on_blocks_without_their_images(family, policy_for, tmp_path):
    # TRL 1.12 and 1.16 see no image column, tokenize the rows as text and drop the images.
    policy = policy_for(family)
    rows = [row | {"chosen": said("Yes."), "rejected": said("No.")} for row in in_blocks()]
    with pytest.raises((ImageError, TicketError), match="`image`/`images` column"):
        dpo(policy, rows, tmp_path, peft=policy.lora_config(r=4)).train()
