"""Every script runs two steps of its stock trainer on a tiny model and leaves an adapter that loads."""

import json
import math

import pytest
import torch
from PIL import Image

from hf_vlm_rl import AutoVLMPolicy
from tests.documents.examples.conftest import PICTURES, SCRIPTS, TINY, run_script
from tests.trainers.runs import flat

pytestmark = pytest.mark.trl

ONLINE = {"num_generations": 2, "max_completion_length": 6}


@pytest.fixture
def train(checkpoint, tmp_path):
    def run(script, folder, family="internvl", **options):
        places = {"model": checkpoint(family), "data": folder, "output_dir": tmp_path / "out"}
        given = TINY | {"held_out": 1} | places | options
        return run_script(script, **{key: value for key, value in given.items() if value is not None})[
            "trainer"
        ]

    return run


def measured(folder):
    """What the adapter's card says was measured on held-out rows, by metric."""
    evaluations = json.loads((folder / "card.json").read_text())["evaluations"]
    return {each["metric"]: each for each in evaluations}


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
    keys = {key for entry in trainer.state.log_history for key in entry}
    assert {key.split("/")[1] for key in keys if key.startswith("rewards/")} == rewards
    assert {f"{name}/parse_rate" for name in rewards} <= keys
    assert set(measured(tmp_path / "out/adapter")) == rewards
    config = json.loads((tmp_path / "out/adapter/adapter_config.json").read_text())
    assert not any("vision" in target for target in config["target_modules"])


def test_grpo_rec_asks_for_boxes_in_the_familys_coordinates(train, expressions, tmp_path):
    trainer = train("grpo_rec", expressions, family="qwen2_5_vl", **ONLINE)
    assert '{"bbox_2d": [' in trainer.train_dataset[0]["prompt"][0]["content"]
    assert trainer.reward_func_names == ["iou_reward", "format_reward"]
    reward, row = trainer.reward_funcs[0], trainer.train_dataset[0]
    right = reward.coordinates.to_text(row["box"], row["image"].size)
    assert reward(completions=[right], box=[row["box"]], image=[row["image"]])[0] > 0.9
    assert set(measured(tmp_path / "out/adapter")) == {"iou_reward", "format_reward"}


def test_grpo_vqa_trains_an_adapter_that_changes_answers(train, questions, tmp_path):
    trainer = train("grpo_vqa", questions, kind="ocr", max_steps=3, **ONLINE)
    assert trainer.reward_func_names == ["ocr_reward", "format_reward"]
    assert any(spread > 0 for spread in flat(trainer, "reward_std"))
    assert changes_answers(tmp_path / "out/adapter")
    ocr = measured(tmp_path / "out/adapter")["ocr_reward"]
    assert (ocr["n"], len(trainer.train_dataset)) == (1, len(PICTURES) - 1)
    assert 0 <= ocr["before"] <= 1
    assert 0 <= ocr["after"] <= 1
    steps = sorted(path.name for path in (tmp_path / "out/evaluation").glob("*.json"))
    assert steps == ["step-000000.json", "step-000003.json"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.yaml"])
def test_grpo_vqa_reads_conversations_and_mixtures(train, conversations, name):
    trainer = train("grpo_vqa", conversations.with_name(name), **ONLINE)
    rows = 4 if name == "rows.jsonl" else 3
    assert len(trainer.train_dataset) == rows - 1
    assert trainer.train_dataset[0]["prompt"][0]["role"] == "system"
    assert {len(row["images"]) for row in trainer.train_dataset} <= {0, 1, 2}


def test_sft_trains_on_rows_of_one_and_of_two_images(train, demonstrations, tmp_path):
    trainer = train("sft", demonstrations, max_steps=2)
    assert all(math.isfinite(loss) for loss in flat(trainer, "loss"))
    assert changes_answers(tmp_path / "out/adapter")
    loss = measured(tmp_path / "out/adapter")["loss"]
    assert loss["n"] == 1  # the rows with the cat stay together
    assert loss["before"] == flat(trainer, "eval_loss")[0]
    assert loss["after"] == flat(trainer, "eval_loss")[-1] != loss["before"]


def test_sft_reads_conversations_and_leaves_out_long_rows(train, conversations):
    trainer = train("sft", conversations)
    assert len(trainer.train_dataset) == 3
    assert trainer.train_dataset[0]["completion"][0]["role"] == "assistant"
    # Two images of 16 tokens and more are too much.
    short = train("sft", conversations, max_tokens=50)
    images = [row["images"] for split in (short.train_dataset, short.eval_dataset) for row in split]
    assert sorted(map(len, images)) == [0, 1, 1]


@pytest.mark.parametrize("name", ["", "pairs.jsonl"], ids=["folder", "jsonl"])
def test_dpo_prefers_the_chosen_answers_more(train, preferences, tmp_path, name):
    trainer = train("dpo", preferences / name, family="qwen2_5_vl", max_steps=2)
    losses = flat(trainer, "loss")
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3)  # the adapter changes nothing yet
    assert losses[-1] < losses[0]
    assert changes_answers(tmp_path / "out/adapter")
    assert measured(tmp_path / "out/adapter")["preference accuracy"]["after"] in (0, 1)  # of one pair


def test_ppo_vqa_trains_policy_and_critic(train, questions, tmp_path):
    pytest.importorskip("trl.experimental.ppo", reason="TRL 1.13 and newer have no PPOTrainer")
    options = {"total_episodes": 4, "num_mini_batches": 2}  # PPO never ends if a batch has more than all rows
    trainer = train("ppo_vqa", questions, response_length=4, **options)
    assert math.isfinite(flat(trainer, "loss/value_avg")[-1])
    assert set(measured(tmp_path / "out/adapter")) == {"normalized_match_reward", "repetition_reward"}


def test_qlora_quantises_the_decoder_and_trains_the_adapter(train, questions, tmp_path):
    pytest.importorskip("bitsandbytes")
    checkpointed = {"optim": "adamw_torch", "max_tiles": 1, "num_generations": 2}
    trainer = train("qlora_24gb", questions, dtype=None, **checkpointed, max_completion_length=4)
    kinds = {type(module).__name__ for module in trainer.model.modules()}
    assert "Linear4bit" in kinds
    assert set(measured(tmp_path / "out/adapter")) == {"normalized_match_reward"}


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


@pytest.mark.parametrize("name", [*TRAINING, "async_grpo_vqa", "infer_adapter"])
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
    """Beside the header for uv."""
    lines = path.read_text().splitlines()
    header = lines.index("# ///") + 1 if lines[0] == "# /// script" else 0
    assert len(lines) - header <= 80
