"""Every script runs two steps of its stock trainer on a tiny model and leaves an adapter that loads."""

import json
import math

import pytest
import torch
from PIL import Image

from hf_vlm_rl import AutoVLMPolicy
from tests.examples.conftest import PICTURES, SCRIPTS, TINY, run_script
from tests.trainers.runs import flat

ONLINE = {"num_generations": 2, "max_completion_length": 6}


@pytest.fixture
def train(checkpoint, tmp_path):
    def run(script, folder, family="internvl", **options):
        places = {"model": checkpoint(family), "data": folder, "output_dir": tmp_path / "out"}
        given = TINY | places | options
        return run_script(script, **{key: value for key, value in given.items() if value is not None})[
            "trainer"
        ]

    return run


def changes_answers(folder):
    """Whether the saved adapter, loaded on its base anew, gives other logits than the base."""
    policy = AutoVLMPolicy.from_pretrained(folder, dtype="float32")
    ids = torch.arange(20, 40)[None]
    with torch.no_grad():
        tuned = policy(input_ids=ids).logits
        with policy.disable_adapter():
            return not torch.allclose(tuned, policy(input_ids=ids).logits, atol=1e-4)


@pytest.mark.parametrize(
    ("prompt", "rewards"), [("list", {"choice_reward"}), ("think", {"choice_reward", "format_reward"})]
)
def test_grpo_brand_lists_the_names_or_asks_for_reasoning(train, brands, tmp_path, prompt, rewards):
    trainer = train("grpo_brand", brands, prompt=prompt, **ONLINE)
    row = trainer.train_dataset[0]
    question = row["prompt"][0]["content"]
    assert row["answer"] in {name.title() for name in PICTURES}
    assert all(name.title() in question for name in PICTURES) == (prompt == "list")
    assert ("<think>" in question) == (prompt == "think")
    logged = {key.split("/")[1] for key in trainer.state.log_history[0] if key.startswith("rewards/")}
    assert logged == rewards
    config = json.loads((tmp_path / "out/adapter/adapter_config.json").read_text())
    assert not any("vision" in target for target in config["target_modules"])


def test_grpo_rec_asks_for_boxes_in_the_familys_coordinates(train, expressions, tmp_path):
    trainer = train("grpo_rec", expressions, family="qwen2_5_vl", **ONLINE)
    assert '{"bbox_2d": [' in trainer.train_dataset[0]["prompt"][0]["content"]
    assert trainer.reward_func_names == ["iou_reward", "format_reward"]
    reward, row = trainer.reward_funcs[0], trainer.train_dataset[0]
    right = reward.coordinates.to_text(row["box"], row["image"].size)
    assert reward(completions=[right], box=[row["box"]], image=[row["image"]])[0] > 0.9
    assert (tmp_path / "out/adapter/adapter_model.safetensors").exists()


def test_grpo_vqa_trains_an_adapter_that_changes_answers(train, questions, tmp_path):
    trainer = train("grpo_vqa", questions, kind="ocr", max_steps=3, **ONLINE)
    assert trainer.reward_func_names == ["ocr_reward", "format_reward"]
    assert any(spread > 0 for spread in flat(trainer, "reward_std"))
    assert changes_answers(tmp_path / "out/adapter")


def test_sft_trains_on_rows_of_one_and_of_two_images(train, demonstrations, tmp_path):
    trainer = train("sft", demonstrations, max_steps=2)
    assert all(math.isfinite(loss) for loss in flat(trainer, "loss"))
    assert changes_answers(tmp_path / "out/adapter")


def test_dpo_prefers_the_chosen_answers_more(train, preferences, tmp_path):
    trainer = train("dpo", preferences, family="qwen2_5_vl", max_steps=2)
    losses = flat(trainer, "loss")
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3)  # the adapter changes nothing yet
    assert losses[-1] < losses[0]
    assert changes_answers(tmp_path / "out/adapter")


def test_ppo_vqa_trains_policy_and_critic(train, questions, tmp_path):
    pytest.importorskip("trl.experimental.ppo", reason="TRL 1.13 and newer have no PPOTrainer")
    options = {"total_episodes": 4, "num_mini_batches": 2}  # PPO never ends if a batch has more than all rows
    trainer = train("ppo_vqa", questions, response_length=4, **options)
    assert math.isfinite(flat(trainer, "loss/value_avg")[-1])
    assert (tmp_path / "out/adapter/adapter_model.safetensors").exists()


def test_qlora_quantises_the_decoder_and_trains_the_adapter(train, questions, tmp_path):
    pytest.importorskip("bitsandbytes")
    checkpointed = {"optim": "adamw_torch", "max_tiles": 1, "num_generations": 2}
    trainer = train("qlora_24gb", questions, dtype=None, **checkpointed, max_completion_length=4)
    kinds = {type(module).__name__ for module in trainer.model.modules()}
    assert "Linear4bit" in kinds
    assert (tmp_path / "out/adapter/adapter_model.safetensors").exists()


def test_infer_adapter_prints_the_adapters_answer(train, demonstrations, tmp_path, capsys):
    train("sft", demonstrations)
    image = tmp_path / "cat.png"
    Image.open(demonstrations / "cat.png").save(image)
    capsys.readouterr()
    given = {"question": "What is it?", "images": image, "dtype": "float32", "device_map": "cpu"}
    run_script("infer_adapter", str(tmp_path / "out/adapter"), **given, max_new_tokens=4)
    printed = capsys.readouterr().out.strip()
    policy = AutoVLMPolicy.from_pretrained(tmp_path / "out/adapter", dtype="float32")
    assert printed.endswith(policy.chat("What is it?", [image], max_new_tokens=4, do_sample=False))


TRAINING = ["grpo_brand", "grpo_rec", "grpo_vqa", "sft", "dpo", "ppo_vqa", "qlora_24gb"]


@pytest.mark.parametrize("name", [*TRAINING, "infer_adapter"])
def test_help_says_what_the_script_takes(name, capsys):
    if name == "ppo_vqa":
        pytest.importorskip("trl.experimental.ppo", reason="TRL 1.13 and newer have no PPOTrainer")
    with pytest.raises(SystemExit) as stopped:
        run_script(name, "--help")
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    expected = ["--images"] if name == "infer_adapter" else ["--data", "--model", "--output_dir"]
    assert all(option in said for option in expected)


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_scripts_have_at_most_eighty_lines(path):
    assert len(path.read_text().splitlines()) <= 80
