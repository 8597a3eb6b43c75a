"""What docs/migrate.md promises: equal losses after three changed lines, VLM-R1's rewards on its files."""

import json
import math
import re
import subprocess
import sys
import zipfile

import pytest

from hf_vlm_rl import BoxCoordinates
from hf_vlm_rl.data import load_mixture
from hf_vlm_rl.rewards import FormatReward, IoUReward
from tests.documents import other_names
from tests.documents.pages import PAGES, ROOT, blocks
from tests.images import photo

OTHER_NAMES = json.loads(other_names.LIST.read_text())
PAGE = PAGES["docs/migrate.md"].read_text()
BEFORE, REGISTERED, _ = (block.source for block in blocks(PAGE) if block.language == "python")
(CHANGES,) = (block.source for block in blocks(PAGE) if block.language == "text")
LOGGED = ("loss", "grad_norm", "reward", "kl", "rewards/chosen", "mean_token_accuracy")
# What other trainers take in place of GRPO's rewards and lengths.
COMPLETIONS = {
    "DPO": "dataset.map(lambda row: {'chosen': said(row['answer']), 'rejected': said('A dog.')}, "
    "remove_columns='answer')",
    "SFT": "dataset.map(lambda row: {'completion': said(row['answer'])}, remove_columns='answer')",
}


def changed(script: str) -> str:
    """The script after the page's changes, each of which has to fit one line."""
    for line in CHANGES.splitlines():
        if line.startswith("-"):
            assert script.count(line[1:] + "\n") == 1, line
    removed = [line[1:] for line in CHANGES.splitlines() if line.startswith("-")]
    added = [line[1:] for line in CHANGES.splitlines() if line.startswith("+")]
    assert len(removed) <= 3
    script = script.replace(removed[0] + "\n", "".join(line + "\n" for line in added[:2]))
    script = script.replace(removed[1] + "\n", added[2] + "\n").replace(removed[2] + "\n", added[3] + "\n")
    return script


def by(trainer: str, script: str) -> str:
    """The script for another trainer: its own class, columns and settings."""
    if trainer == "GRPO":
        return script
    script = script.replace("GRPO", trainer).replace("    reward_funcs=is_right,\n", "")
    script = script.replace("max_completion_length=64", "max_length=None")
    return script.replace("train_dataset=dataset", f"train_dataset={COMPLETIONS[trainer]}")


# A tiny random model never gives the right answer, and without a difference GRPO learns nothing.
REWARDS = ('float(a in c[0]["content"])', 'float(sum(map(ord, c[0]["content"])) % 7)')


@pytest.fixture
def logs(environment, policy_for, tmp_path):
    """`logs(script)`: what each of its steps logs, in float32, where no placeholder is sampled."""
    suppressed = list(policy_for("qwen2_5_vl").placeholder_ids)
    short = {"max_steps": 2, "learning_rate": 1e-2}
    grpo = short | {"generation_kwargs": {"suppress_tokens": suppressed}}
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{environment.get('PYTHONPATH', '')}"}
    begin = f"""
from tests.documents.material import ROLLOUT, rows, said, short_runs
short_runs(GRPO=ROLLOUT | {grpo}, DPO={short}, SFT={short})
dataset = rows()
"""
    end = """
import json
print("LOGS", json.dumps(trainer.state.log_history))
"""

    def logged(script: str) -> list[dict]:
        assert script.count(REWARDS[0]) == 1
        script = script.replace("bfloat16", "float32").replace(*REWARDS)
        command = [sys.executable, "-c", begin + script + end]
        options = {"cwd": tmp_path, "env": environment | path, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(re.search(r"^LOGS (.*)$", done.stdout, re.MULTILINE)[1])

    return logged


def assert_equal(before: list[dict], after: list[dict]) -> None:
    compared = 0
    for old, new in zip(before, after, strict=True):
        for key in LOGGED:
            if key in old:
                assert math.isclose(new[key], old[key], rel_tol=2e-4, abs_tol=2e-6), (key, old[key], new[key])
                compared += 1
    assert compared >= 4
    assert max(step.get("grad_norm", 0) for step in before) > 0


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["GRPO", "DPO", "SFT"])
def test_three_changed_lines_give_equal_losses(trainer, logs):
    assert_equal(logs(by(trainer, BEFORE)), logs(by(trainer, changed(BEFORE))))


@pytest.mark.slow
def test_register_and_the_stock_processor_give_equal_losses(logs):
    head = BEFORE.partition("model = ")[0]
    function = BEFORE.partition("def is_right")[2].partition("\n\n\nset_seed")[0]
    assert_equal(logs(BEFORE), logs(f"{head}\n\ndef is_right{function}\n\n{REGISTERED}"))


# What VLM-R1 gives by its rules, worked out by hand. IoU: of the first four whole numbers in brackets inside
# <answer>, brought from the resized image to the original one. Format: 1 for <think> and <answer> alone.
# The right box is [16, 16, 80, 96] in an image of 112 x 112, which Qwen2.5-VL does not resize.
ANSWERS = {
    '<think>left</think><answer>{"bbox_2d": [16, 16, 80, 96]}</answer>': (1.0, 1.0),
    "<think>left</think>\n<answer>[16, 16, 80, 56]</answer>": (0.5, 1.0),
    "<think>left</think><answer>[48, 16, 112, 96]</answer>": (2560 / 7680, 1.0),
    "<think>left</think><answer>[80, 16, 112, 96]</answer>": (0.0, 1.0),
    "<think>left</think><answer>in the middle</answer>": (0.0, 1.0),
    "<answer>[16, 16, 80, 96]</answer>": (1.0, 0.0),
    "so <think>left</think><answer>[16, 16, 80, 96]</answer>": (1.0, 0.0),
    "": (0.0, 0.0),
}
BOX = "[16, 16, 80, 96]"
# The same by VLM-R1's rules, and here.
ON_PURPOSE = {
    "[16, 16, 80, 96]": ((0.0, 0.0), (1.0, 0.0)),
    "<think>left</think><answer>[16, 16, 80, 96] or [0, 0, 9, 9]</answer>": ((1.0, 1.0), (0.0, 1.0)),
    "<think>left</think><answer>[16.0, 16.0, 80.0, 96.0]</answer>": ((0.0, 1.0), (1.0, 1.0)),
    "<think></think><answer>[16, 16, 80, 96]</answer>": ((1.0, 1.0), (1.0, 0.0)),
}


@pytest.fixture(params=["lists", "text"])
def vlm_r1_rows(tmp_path, request):
    """The rows of the files that the page shows, with an image, and the same with text for the box."""
    (mixture,) = (block.source for block in blocks(PAGE) if block.language == "yaml")
    (lines,) = (block.source for block in blocks(PAGE) if block.language == "json")
    if request.param == "text":
        lines = lines.replace(BOX, f'"<answer>{BOX}</answer>"')
    (tmp_path / "rec.yaml").write_text(mixture)
    (tmp_path / "rec.jsonl").write_text(lines)
    (tmp_path / "coco" / "train2014").mkdir(parents=True)
    photo("cat", (112, 112)).save(tmp_path / "coco" / "train2014" / "1.jpg")
    return load_mixture(tmp_path / "rec.yaml", answer="solution")


@pytest.mark.parametrize("answers", [{each: (value, value) for each, value in ANSWERS.items()}, ON_PURPOSE])
def test_rewards_on_vlm_r1s_rows(answers, vlm_r1_rows, policy_for):
    boxes = BoxCoordinates.of(policy_for("qwen2_5_vl").processing_class)
    overlap = IoUReward(column="solution", coordinates=boxes)
    assert len(vlm_r1_rows) == 2
    for row in vlm_r1_rows:
        columns = {name: [row[name]] * len(answers) for name in ("solution", "images")}
        completions = [[{"role": "assistant", "content": text}] for text in answers]
        given = zip(
            overlap(completions=completions, **columns), FormatReward()(completions=completions), strict=True
        )
        for rewards, (_, expected) in zip(given, answers.values(), strict=True):
            assert rewards == pytest.approx(expected, rel=1e-6)


def test_the_two_ways_to_write_a_row_are_one(vlm_r1_rows):
    first, second = vlm_r1_rows
    assert [block["type"] for block in first["prompt"][0]["content"]] == ["image", "text"]
    assert first["prompt"] == second["prompt"]
    assert [image.size for image in first["images"] + second["images"]] == [(112, 112)] * 2


@pytest.mark.parametrize("project", other_names.SECTIONS)
def test_the_other_project_has_every_name_of_its_table(project):
    """In the wheel of the version that the page names, as other_names.py read it."""
    read = OTHER_NAMES[project]
    assert re.search(rf"{other_names.SECTIONS[project]}\n\n\S+ {re.escape(read['version'])} ", PAGE)
    assert read["names"].keys() == other_names.named(project)
    assert len(read["names"]) > 15
    assert [name for name, home in read["names"].items() if home is None] == []


def test_names_are_read_off_the_source_of_a_wheel(tmp_path):
    wheel = tmp_path / "ms_swift-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr(
            "swift/arguments/a.py", "class A:\n    rlhf_type: str\n\ndef f(lora_rank):\n    A.beta = 1\n"
        )
        files.writestr("swift/other/b.py", "model: str")
    project, read = other_names.read(wheel)
    assert (project, read["version"]) == ("ms_swift", "1.2")
    known = {name for name, home in read["names"].items() if home == "swift/arguments/a.py"}
    assert known == {"rlhf_type", "lora_rank", "beta"}
    assert read["names"]["model"] is None
