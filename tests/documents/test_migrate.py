"""What docs/migrate.md promises: equal losses after the page's changes, VLM-R1's rewards on its files."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from hf_vlm_rl import BoxCoordinates
from hf_vlm_rl.data import load_mixture
from hf_vlm_rl.rewards import FormatReward, IoUReward
from tests.documents import other_names
from tests.documents.pages import PAGES, ROOT, blocks
from tests.documents.peers.alike import LENGTH
from tests.documents.shell import commands
from tests.images import photo

OTHER_NAMES = json.loads(other_names.LIST.read_text())
PAGE = PAGES["docs/migrate.md"].read_text()
BEFORE, REGISTERED, VLM_R1, SWIFT, UNSLOTH = (
    block.source for block in blocks(PAGE) if block.language == "python"
)
CHANGES, UNSLOTH_CHANGES = (block.source for block in blocks(PAGE) if block.language == "text")
_, SWIFT_COMMAND = (commands(block.source)[0] for block in blocks(PAGE) if block.language == "bash")
PEERS = ROOT / ".lanes" / "peers"
LOGGED = ("loss", "grad_norm", "reward", "kl", "rewards/chosen", "mean_token_accuracy")
# What other trainers take in place of GRPO's rewards and lengths.
COMPLETIONS = {
    "DPO": "dataset.map(lambda row: {'chosen': said(row['answer']), 'rejected': said('A dog.')}, "
    "remove_columns='answer')",
    "SFT": "dataset.map(lambda row: {'completion': said(row['answer'])}, remove_columns='answer')",
}


def changed(script: str, changes: str = CHANGES) -> str:
    """The script after the page's changes, each of which has to fit one place."""
    for old, new in re.findall(r"((?:^[ -].*\n)+)((?:^\+.*\n)+)", changes, re.MULTILINE):
        kept = "".join(line[1:] for line in old.splitlines(keepends=True) if line.startswith(" "))
        old, new = (re.sub("^.", "", lines, flags=re.MULTILINE) for lines in (old, new))
        assert script.count(old) == 1, old
        script = script.replace(old, kept + new)
    return script


def test_three_lines_change():
    assert CHANGES.count("\n-") == 2
    assert len(set(BEFORE.splitlines()) - set(changed(BEFORE).splitlines())) == 3


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

    def logged(script: str, own: str = begin) -> list[dict]:
        assert own != begin or script.count(REWARDS[0]) == 1
        script = script.replace("bfloat16", "float32").replace(*REWARDS)
        command = [sys.executable, "-c", own + script + end]
        options = {"cwd": tmp_path, "env": environment | path, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(re.search(r"^LOGS (.*)$", done.stdout, re.MULTILINE)[1])

    return logged


def assert_equal(
    before: list[dict], after: list[dict], tolerance: float = 2e-4, logged: Sequence[str] = LOGGED
) -> None:
    """Equal to a relative tolerance; to 2e-6 where all terms of a loss cancel."""
    compared = 0
    for old, new in zip(before, after, strict=True):
        for key in logged:
            if key in old:
                close = math.isclose(new[key], old[key], rel_tol=tolerance, abs_tol=2e-6)
                assert close, (key, old[key], new[key])
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


# Before a section's script: what the page's first one has, and trainers that start as the other project's.
ALIKE = """
import trl
from tests.documents.material import rows, short_runs
from tests.documents.peers.alike import is_right, same_start

dataset = rows()
for name in ("GRPOTrainer", "SFTTrainer"):
    class Alike(getattr(trl, name)):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            same_start(self.model)
    setattr(trl, name, Alike)
RUN = {"max_steps": 3, "shuffle_dataset": False}
short_runs(GRPO=RUN, SFT=RUN)

from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from hf_vlm_rl import AutoVLMPolicy
MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
"""
FOUR = (
    "short_runs(GRPO=RUN | {'per_device_train_batch_size': 4, 'num_generations': 4, 'learning_rate': 1e-3})\n"
)


def lane(name: str) -> Path:
    """The environment of another project, or a skip that says how to get it."""
    if not (PEERS / name / ".installed").exists():
        pytest.skip(f"{name} is in an environment of its own, which is missing here: make test-peers")
    return PEERS / name


def own(command: list, folder: Path, **environment: str) -> None:
    """Run what another project has of its own, without a network."""
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | environment
    done = subprocess.run(
        command, cwd=folder, env=os.environ | quiet, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


# Besides the page's command: a CPU, a tiny model, three steps, and rows in order.
HERE = shlex.split("""
    --model_type qwen2_5_vl --template qwen2_5_vl --torch_dtype float32 --bf16 false --fp16 false
    --use_cpu true --max_steps 3 --logging_steps 1 --save_strategy no --eval_strategy no
    --split_dataset_ratio 0 --dataset_shuffle false --train_dataloader_shuffle false
    --dataloader_num_workers 0 --dataset_num_proc 1
    --report_to none --add_version false --use_hf true --output_dir out --learning_rate 1e-2
""")
GRPO_ALONE = r"rlhf_type|external_plugins|reward_funcs|num_generations|max_completion_length"
NOT_IN_SFT = (
    r"    (reward_funcs|    (num_generations|beta|temperature|loss_type|use_bias_correction_kl))=.*\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rlhf", "sft"])
def test_ms_swifts_own_run_has_equal_losses(kind, checkpoint, logs, tmp_path):
    python = lane("swift") / "bin" / "python"
    answered = [{"role": "user", "content": "<image>What is it?"}, {"role": "assistant", "content": "A cat."}]
    lines = []
    for name in ("cat", "coffee", "astronaut", "rocket"):
        photo(name, (112, 112)).save(tmp_path / f"{name}.png")
        lines.append(json.dumps({"messages": answered, "images": [f"{name}.png"]}) + "\n")
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    options = dict(zip(SWIFT_COMMAND[2::2], SWIFT_COMMAND[3::2], strict=True))
    assert SWIFT_COMMAND[:2] == ["swift", "rlhf"]
    options |= {"--model": str(checkpoint("qwen2_5_vl")), "--max_completion_length": str(LENGTH)}
    options |= {"--external_plugins": str(ROOT / "tests" / "documents" / "peers" / "swift_reward.py")}
    script = SWIFT.replace("max_completion_length=64", f"max_completion_length={LENGTH}")
    script = script.replace("learning_rate=1e-4", "learning_rate=1e-2")
    if kind == "sft":
        options = {name: value for name, value in options.items() if not re.search(GRPO_ALONE, name)}
        script = re.sub(NOT_IN_SFT, "", script).replace("GRPO", "SFT")
        script = script.replace(f"max_completion_length={LENGTH}", "max_length=None")
        script = script.replace('"rows.jsonl"', '"rows.jsonl", completion=True')
    words = [word for pair in options.items() for word in pair]
    run = [str(python), "-W", "ignore", "-m", "tests.documents.peers.run_swift", kind, *words, *HERE]
    own(run, tmp_path, PYTHONPATH=str(ROOT))
    *steps, last = (tmp_path / "out" / "logging.jsonl").read_text().splitlines()
    before = json.loads(last)["log_history"]
    assert len(before) == len(steps)
    assert_equal(before, logs(script, ALIKE), 1e-5, ("loss", "grad_norm", "kl", "reward"))


@pytest.fixture
def rec(tmp_path):
    """One row of VLM-R1's, in the files of the page."""
    (mixture,) = (block.source for block in blocks(PAGE) if block.language == "yaml")
    (line, _) = next(block.source for block in blocks(PAGE) if block.language == "json").splitlines()
    (tmp_path / "rec.yaml").write_text(mixture)
    (tmp_path / "rec.jsonl").write_text(line + "\n")
    (tmp_path / "coco" / "train2014").mkdir(parents=True)
    photo("cat", (112, 112)).save(tmp_path / "coco" / "train2014" / "1.jpg")


# The reward functions of the page's script give a tiny random model nothing to learn from.
OUR_REC = re.sub(r"reward_funcs=\[.*\]", "reward_funcs=is_right", VLM_R1)
# The same in plain TRL, with VLM-R1's way to freeze.
PLAIN_REC = """
import json
from PIL import Image
from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

model = AutoModelForImageTextToText.from_pretrained(MODEL, dtype="float32")
for name, parameter in model.named_parameters():
    parameter.requires_grad_("visual" not in name)
row = json.loads(open("rec.jsonl").readline())
question = row["problem"].replace("<image>", "") + TEMPLATE
rows = [{"prompt": [{"role": "user", "content": question}], "images": [Image.open("coco/" + row["image"])]}]
trainer = GRPOTrainer(
    model=model,
    processing_class=AutoProcessor.from_pretrained(MODEL, max_pixels=12845056, min_pixels=3136),
    reward_funcs=is_right,
    args=GRPOConfig(
        output_dir="out", beta=0.04, model_init_kwargs={"dtype": "float32"}, loss_type="grpo",
        use_bias_correction_kl=False,
    ),
    train_dataset=Dataset.from_list(rows),
)
trainer.train()
"""


@pytest.mark.slow
def test_vlm_r1s_settings_in_plain_trl_have_equal_losses(rec, logs):
    template = "TEMPLATE = (" + VLM_R1.partition("TEMPLATE = (")[2].partition("\n)\n")[0] + "\n)\n"
    assert_equal(logs(template + PLAIN_REC, ALIKE + FOUR), logs(OUR_REC, ALIKE + FOUR))


@pytest.mark.slow
def test_vlm_r1s_own_trainer_has_equal_losses(rec, checkpoint, logs, tmp_path):
    theirs, log = lane("vlm-r1"), tmp_path / "log.json"
    run = [sys.executable, "-W", "ignore", "-m", "tests.documents.peers.run_vlm_r1", checkpoint("qwen2_5_vl")]
    path = (theirs / "packages", theirs / "VLM-R1" / "src" / "open-r1-multimodal" / "src", ROOT)
    own([*run, tmp_path / "rec.jsonl", tmp_path / "coco", log], tmp_path, PYTHONPATH=":".join(map(str, path)))
    # Its log rounds the loss to four places, and its mean reward leaves out rows that a last batch repeats.
    assert_equal(json.loads(log.read_text()), logs(OUR_REC, ALIKE + FOUR), 1e-4, ("grad_norm", "kl"))


@pytest.mark.slow
def test_unsloths_script_on_the_stock_model_has_equal_losses(logs):
    begin = ALIKE + FOUR + "import tests.documents.peers.unsloth_names\n"
    assert_equal(logs(UNSLOTH, begin), logs(changed(UNSLOTH, UNSLOTH_CHANGES), begin))


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
