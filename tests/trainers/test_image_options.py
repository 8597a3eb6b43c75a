"""Options of single images come through trainers, in blocks and in a column."""

import pytest
from transformers import set_seed

from tests.trainers.runs import cat, cup, dpo, grpo, logs, said, sft, woman

pytestmark = pytest.mark.trl

OPTIONS = {"internvl": {"max_num": 1}, "qwen2_5_vl": {"max_pixels": 18 * 28 * 28, "min_pixels": 12 * 28 * 28}}
families = pytest.mark.parametrize("family", OPTIONS)


def blocks(*images) -> list[dict]:
    content = [{"type": "image", **image} for image in images] + [{"type": "text", "text": "What is it?"}]
    return [{"role": "user", "content": content}]


def beside(options: dict) -> list[dict]:
    """Beside the images in their blocks."""
    return [
        {"prompt": blocks({"image": cup(), **options})},
        {"prompt": blocks({"image": woman(), **options}, {"image": cat(), **options})},
        {"prompt": blocks()},
    ]


def placeholders(options: dict) -> list[dict]:
    """Beside empty blocks, the images in a column."""
    return [
        {"prompt": blocks(options), "images": [cup()]},
        {"prompt": blocks(options, options), "images": [woman(), cat()]},
        {"prompt": blocks(), "images": []},
    ]


def column(options: dict) -> list[dict]:
    """With the images in a column."""
    return [
        {"prompt": blocks({}), "images": [encoded(cup(), options)]},
        {"prompt": blocks({}, {}), "images": [encoded(image, options) for image in (woman(), cat())]},
        {"prompt": blocks(), "images": []},
    ]


def encoded(image, options: dict) -> dict:
    import io

    file = io.BytesIO()
    image.save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None, **options}


@families
def test_grpo(family, policy_for, tmp_path):
    options, seen = OPTIONS[family], []
    for rows in (beside(options), column(options), beside({})):
        policy = policy_for(family)
        set_seed(5)
        trainer = grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), beta=0.1)
        trainer.train()
        seen.append(logs(trainer, "loss", "grad_norm", "kl", "entropy"))
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]


@families
@pytest.mark.parametrize("train", [dpo, sft])
def test_dpo_and_sft(family, train, policy_for, tmp_path):
    options, seen = OPTIONS[family], []
    answers = {
        dpo: {"chosen": said("A cup."), "rejected": said("No.")},
        sft: {"completion": said("A cup.")},
    }[train]
    for rows in (placeholders(options), column(options), column({})):
        policy = policy_for(family)
        set_seed(5)
        trainer = train(
            policy, [row | answers for row in rows[:2]], tmp_path, peft=policy.lora_config(r=4), max_steps=1
        )
        trainer.train()
        seen.append(logs(trainer, "loss", "grad_norm"))
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]
