"""`hf-vlm-rl eval` on files, saved datasets and adapters."""

import json
import shutil
import subprocess
import sys

import pytest
from datasets import Dataset, DatasetDict
from peft import get_peft_model

from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.evaluation import EvaluationResult, evaluate
from hf_vlm_rl.rewards import normalized_match_reward
from tests.evaluation.rows import mixture, short, user
from tests.images import photo

REWARDS = ["--rewards", "normalized_match_reward", "tests.evaluation.rows:short"]
OPTIONS = [*REWARDS, "--max-new-tokens", "5", "--device", "cpu"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A jsonl file with the paths of its images."""
    folder = tmp_path_factory.mktemp("rows")
    photo("cat", (112, 112)).save(folder / "cat.png")
    lines = [
        {"prompt": user("What is it?"), "images": ["cat.png"], "answer": "a cat"},
        {"prompt": user("Say hello."), "images": [], "answer": "hello"},
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "rows.jsonl"


def test_a_file_of_rows_gives_what_evaluate_gives(
    rows, checkpoint, policy_for, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # images are found from the file, not from here
    out = tmp_path / "out"
    assert cli.main(["eval", str(checkpoint("internvl")), str(rows), *OPTIONS, "--out", str(out)]) == 0
    expected = evaluate(
        policy_for("internvl"),
        [
            {"prompt": user("What is it?"), "images": [rows.parent / "cat.png"], "answer": "a cat"},
            {"prompt": user("Say hello."), "images": [], "answer": "hello"},
        ],
        [normalized_match_reward, short],
        max_new_tokens=5,
    )
    assert EvaluationResult.load(out / "result.json") == expected
    assert capsys.readouterr().out == f"{expected}\n"
    assert "What is it?" in (out / "result.html").read_text()


def test_a_temperature_samples_from_all_tokens_whatever_the_checkpoint_says(rows, checkpoint, tmp_path):
    path = shutil.copytree(checkpoint("internvl"), tmp_path / "model")
    (path / "generation_config.json").write_text(json.dumps({"do_sample": True, "top_k": 1, "top_p": 0.001}))
    sampled = ["--num-generations", "4", "--temperature", "1.5", "--out", str(tmp_path)]
    assert cli.main(["eval", str(path), str(rows), *OPTIONS, *sampled]) == 0
    result = EvaluationResult.load(tmp_path / "result.json")
    assert all(len(set(row.completions)) > 1 for row in result.rows)


@pytest.mark.parametrize("form", ["llava", "messages", "mixture"])
def test_conversations_give_what_trl_s_columns_give(form, rows, checkpoint, tmp_path, capsys):
    folder = rows.parent
    lines = [
        {"image": "cat.png", "asked": "<image>\nWhat is it?", "said": "a cat"},
        {"image": None, "asked": "Say hello.", "said": "hello"},
    ]
    keys = ("from", "value") if form != "messages" else ("role", "content")
    for line in lines:
        said = [("user", line.pop("asked")), ("assistant", line.pop("said"))]
        name = "messages" if form == "messages" else "conversations"
        line[name] = [dict(zip(keys, turn, strict=True)) for turn in said]
    path = folder / f"{form}.json"
    path.write_text(json.dumps(lines))
    if form == "mixture":
        path = folder / "mixture.yaml"
        path.write_text("datasets: [{json_path: mixture.json}]")
    results = []
    for source in (rows, path):
        out = tmp_path / source.stem
        assert cli.main(["eval", str(checkpoint("internvl")), str(source), *OPTIONS, "--out", str(out)]) == 0
        results.append(EvaluationResult.load(out / "result.json"))
    assert results[0].rewards == results[1].rewards
    capsys.readouterr()
    path.with_suffix(".jsonl").write_text(json.dumps(lines[0]) + "\n{}\n")
    assert cli.main(["eval", "no/model", str(path.with_suffix(".jsonl")), *OPTIONS]) == 1
    assert ".jsonl, line 2: the row has []" in capsys.readouterr().err


def test_an_adapter_is_compared_with_its_base(rows, checkpoint, policy_for, tmp_path, capsys):
    policy = policy_for("internvl")
    get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False)).save_pretrained(
        tmp_path / "adapter"
    )
    base, adapter = str(tmp_path / "base"), str(tmp_path / "adapter")
    assert cli.main(["eval", str(checkpoint("internvl")), str(rows), *OPTIONS, "--out", base]) == 0
    before = ["--before", f"{base}/result.json", "--out", str(tmp_path / "out")]
    assert cli.main(["eval", adapter, str(rows), *OPTIONS, *before]) == 0
    assert "| short | 2 | " in capsys.readouterr().out.split("difference")[1]
    assert (tmp_path / "out" / "comparison.html").exists()
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "/gone/base"}))
    assert cli.main(["eval", adapter, str(rows), *OPTIONS]) == 1
    assert "Say where the base model is now: --base-model <Hub id or directory>" in capsys.readouterr().err
    moved = ["--base-model", str(checkpoint("internvl"))]
    assert cli.main(["eval", adapter, str(rows), *OPTIONS, *moved]) == 0


def test_a_split_of_a_saved_dataset_and_its_first_rows(checkpoint, tmp_path, capsys):
    held_out = Dataset.from_list([row for row in mixture() if row["images"]])
    DatasetDict(test=held_out, train=held_out).save_to_disk(tmp_path / "rows")
    command = ["eval", str(checkpoint("internvl")), str(tmp_path / "rows"), *OPTIONS]
    assert cli.main([*command, "--limit", "1", "--num-generations", "2"]) == 0
    assert "1 rows, 2 completion(s) each" in capsys.readouterr().out
    assert cli.main([*command, "--split", "validation"]) == 1
    assert "no split 'validation'. Expected one of ['test', 'train']" in capsys.readouterr().err


def test_a_mistyped_reward_is_found_before_torch_is_imported():
    script = (
        "import sys; from hf_vlm_rl.cli import main; "
        "status = main(['eval', 'no/model', 'rows.jsonl', '--rewards', 'iou_rewrad']); "
        "sys.exit(status + 1 + ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Did you mean iou_reward?" in done.stderr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--rewards", "tests.evaluation.rows:shrt"], "Did you mean tests.evaluation.rows:short?"),
        (["--device", "gpu"], "Got --device gpu"),
        (["--rewards", "no_such_reward"], "hf_vlm_rl.rewards has no no_such_reward."),
        (["--rewards", "nowhere:reward"], "No module named 'nowhere'"),
        (["--rewards", "IoUReward"], "write a module with an instance"),
        (["--rewards", "iou_reward"], "reads the column 'box', which is missing"),
        (["--before", "nowhere.json"], "nowhere.json"),
    ],
)
def test_what_cannot_be_done_ends_with_status_1_and_says_why(changed, message, rows, checkpoint, capsys):
    assert cli.main(["eval", str(checkpoint("internvl")), str(rows), *OPTIONS, *changed]) == 1
    assert message in capsys.readouterr().err


def test_a_file_of_another_kind_is_refused_before_the_model_is_loaded(tmp_path, capsys):
    (tmp_path / "rows.txt").touch()
    assert cli.main(["eval", "no/model", str(tmp_path / "rows.txt"), *OPTIONS]) == 1
    assert "rows.txt is empty. Expected a JSON Lines file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["--rewards", "iou_reward"], "Got no dataset. --rewards needs one"),
        (["rows.jsonl", "--rewards", "iou_reward", "--force-simple"], "Got --force-simple or"),
        (["rows.jsonl", "--rewards", "iou_reward", "--temperature", "1e-9"], "Expected 0.01 to 100"),
        (
            ["rows.jsonl", "--rewards", "iou_reward", "--before", "base/result.json", "--out", "base/"],
            "Got --before and --out of one file",
        ),
        (["rows.jsonl", "--rewards", "iou_reward", "--lmms-folder", "x"], "or --lmms-folder without --lmms"),
        (["rows.jsonl", "--lmms", "ai2d"], "Got dataset with --lmms"),
        (["--lmms", "ai2d", "--temperature", "1", "--drop", "id"], "Got drop, temperature with --lmms"),
        (["--lmms", "ai2d", "--out", "out", "--limit", "3"], "--lmms needs lmms-eval: pip install '.[lmms]'"),
    ],
)
def test_benchmarks_have_rows_and_rewards_of_their_own(command, message, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmms_eval", None)  # as if it were not installed
    assert cli.main(["eval", "no/model", *command]) == 1
    assert message in capsys.readouterr().err


def test_the_options_are_known_without_torch():
    script = (
        "import sys; from hf_vlm_rl.cli.commands import build_parser; build_parser(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_help_names_the_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["eval", "--help"])
    assert stopped.value.code == 0
    assert "--num-generations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (3, "line 1: 'prompt' is 3; expected a list of messages"),
        (["a", "b"], "line 1: prompt[0] is 'a'; expected {'role'"),
        ([[user("a")[0]]], "line 1: prompt[0] is [{'role'"),
        ([{"content": "x"}], "line 1: prompt[0] is {'content': 'x'}"),
        ([{"role": 7, "content": "x"}], "line 1: turn 0 is said by 7"),
        ([{"role": "user", "content": 5}], "line 1: turn 0 has the content 5; expected a string or blocks"),
        ([{"role": "user", "content": [5]}], "line 1: turn 0 has the block 5"),
        ([{"role": "user", "content": [{"text": "x"}]}], "line 1: turn 0 has the block {'text': 'x'}"),
        (
            [{"role": "user", "content": [{"type": "text", "text": 4}]}],
            "line 1: turn 0 has the block {'type': 'text', 'text': 4",
        ),
    ],
)
def test_prompts_of_another_form_are_named(prompt, message, checkpoint, tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": prompt, "answer": "a"}) + "\n")
    assert cli.main(["eval", str(checkpoint("internvl")), str(tmp_path / "rows.jsonl"), *OPTIONS]) == 1
    assert message in capsys.readouterr().err


def test_modules_of_rewards_that_cannot_be_imported_are_named(rows, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text, message in (
        ("broken", "def f(:", "Got the reward 'broken:f': SyntaxError: "),
        ("divides", "1 / 0", "Got the reward 'divides:f': ZeroDivisionError: division by zero"),
        ("waits", "async def f(**columns): return [1.0]", "Got the reward 'waits:f', which is <function f"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        assert cli.main(["eval", "model", str(rows), "--rewards", f"{name}:f"]) == 1
        assert message in capsys.readouterr().err
    assert cli.main(["eval", "model", str(rows), "--rewards", "..x:y"]) == 1
    assert "Got the reward '..x:y': TypeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", b"", "SafetensorError"),
        ("model.safetensors", b"\xff" * 64, "SafetensorError"),
        ("tokenizer.json", b"{}", "cannot be read (KeyError: 'added_tokens')"),
        ("chat_template.jinja", b"{% for", "is no Jinja template"),
        ("chat_template.jinja", b"{{ raise_exception('no') }}", "refuses a user's message with an image: no"),
    ],
)
def test_a_damaged_checkpoint_is_named(file, content, message, rows, checkpoint, tmp_path, capsys):
    shutil.copytree(checkpoint("internvl"), tmp_path / "model")
    (tmp_path / "model" / file).write_bytes(content)
    assert cli.main(["eval", str(tmp_path / "model"), str(rows), *OPTIONS]) == 1
    assert message in capsys.readouterr().err


def test_a_checkpoint_of_endless_layers_is_named(rows, checkpoint, tmp_path, capsys):
    shutil.copytree(checkpoint("internvl"), tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 10**18
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert cli.main(["eval", str(tmp_path / "model"), str(rows), *OPTIONS]) == 1
    assert f"has num_hidden_layers={10**18}. Expected 1000 or fewer" in capsys.readouterr().err
