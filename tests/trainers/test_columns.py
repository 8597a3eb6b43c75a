"""The forms in which TRL's rows hold images: one, a list, None, an empty list, and none at all."""

import math

import pytest
from transformers import set_seed

from hf_vlm_rl import ImageError
from tests.trainers.runs import TWO, cat, cup, grpo, logs, rloo, user, woman

pytestmark = pytest.mark.trl

TEXTS = ("What is it?", "Say hello to the user.", "Describe it.")


def column(name: str, values) -> list[dict]:
    return [{"prompt": user(text), name: value} for text, value in zip(TEXTS, values, strict=True)]


def run(policy, rows, out, **options):
    set_seed(7)
    trainer = grpo(policy, rows, out, peft=policy.lora_config(r=4), beta=0.1, **options)
    trainer.train()
    return logs(trainer, "loss", "grad_norm", "kl", "entropy")


@pytest.mark.parametrize("family", TWO)
def test_rows_without_an_image_may_say_none_in_an_image_column(family, policy_for, tmp_path):
    none = run(policy_for(family), column("image", [woman(), None, cup()]), tmp_path)
    lists = run(policy_for(family), column("images", [[woman()], [], [cup()]]), tmp_path)
    assert none == lists
    assert abs(none[0][2]) < 1e-6


@pytest.mark.parametrize("family", TWO)
def test_rows_without_an_image_may_say_none_in_an_images_column(family, policy_for, tmp_path):
    none = run(policy_for(family), column("images", [[woman()], None, [cup(), cat()]]), tmp_path)
    empty = run(policy_for(family), column("images", [[woman()], [], [cup(), cat()]]), tmp_path)
    assert none == empty


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("train", [grpo, rloo], ids=["grpo", "rloo"])
@pytest.mark.parametrize("name", ["image", "images"])
def test_a_batch_without_any_image_trains_as_text(name, train, family, policy_for, tmp_path):
    # One prompt in a rollout: two of the three rollouts have no image at all.
    empty = None if name == "image" else []
    full = woman() if name == "image" else [woman()]
    policy = policy_for(family)
    options = {"steps_per_generation": 1, "beta": 0.1, "peft": policy.lora_config(r=4)}
    trainer = train(policy, column(name, [full, empty, empty]), tmp_path, **options)
    trainer.train()
    steps = logs(trainer, "grad_norm", "kl")
    assert len(steps) == 3
    assert all(norm > 0 and math.isfinite(kl) for norm, kl in steps)


@pytest.mark.parametrize("family", TWO)
def test_an_empty_images_column_trains_as_no_column(family, policy_for, tmp_path):
    empty = run(policy_for(family), column("images", [[], [], []]), tmp_path)
    absent = run(policy_for(family), [{"prompt": user(text)} for text in TEXTS], tmp_path)
    assert empty == absent


@pytest.mark.parametrize("family", TWO)
def test_other_columns_reach_the_reward(family, policy_for, tmp_path):
    seen = []

    def reward(completions, answer, **columns):
        seen.extend(answer)
        assert "image" in columns
        return [float(len(set(str(completion)))) for completion in completions]

    rows = [
        row | {"answer": str(number)} for number, row in enumerate(column("image", [woman(), cup(), cat()]))
    ]
    policy = policy_for(family)
    grpo(policy, rows, tmp_path, reward=reward, peft=policy.lora_config(r=4)).train()
    assert sorted(seen) == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize("family", TWO)
def test_paths_and_bytes_train_as_the_images_they_hold(family, policy_for, tmp_path):
    path = tmp_path / "woman.png"
    woman().save(path)
    values = [{"path": str(path), "bytes": None}, {"path": None, "bytes": path.read_bytes()}, str(path)]
    expected = run(policy_for(family), column("image", [woman()] * 3), tmp_path)
    for value in values:
        assert run(policy_for(family), column("image", [value] * 3), tmp_path) == expected


@pytest.mark.parametrize("family", TWO)
def test_more_placeholder_blocks_than_images_raise(family, policy_for, tmp_path):
    blocks = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "Compare."}]
    rows = [{"prompt": [{"role": "user", "content": blocks}], "images": [woman()]}] * 3
    with pytest.raises(ValueError, match=r"\b2\b.*\b1\b|\b1\b.*\b2\b"):
        run(policy_for(family), rows, tmp_path)


@pytest.mark.parametrize("family", TWO)
def test_a_text_with_a_literal_placeholder_raises(family, policy_for, tmp_path):
    policy = policy_for(family)
    token = policy.processing_class.image_token
    rows = [{"prompt": user(f"What does {token} mean?"), "images": [woman()]}] * 3
    with pytest.raises(ImageError, match="placeholder"):
        run(policy, rows, tmp_path)
