"""`hf-vlm-rl` ends with 0, or with 1 and a message, or with 2 for wrong arguments; never with a traceback."""

import re
import subprocess
import sys
from importlib import metadata

import pytest

from hf_vlm_rl.cli import main
from hf_vlm_rl.cli.arguments import in_flags
from hf_vlm_rl.cli.commands import COMMANDS, build_parser

REWARD = ("--rewards", "exact_match_reward")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: an empty folder, a file that is nothing, rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "bad.jsonl").write_text('{"prompt": \n')
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Hello.", "answer": "hello"}\n')
    (tmp_path / "deep.jsonl").write_text(f'{{"prompt": {"[" * 5000 + "]" * 5000}}}\n')
    (tmp_path / "mixed.yaml").write_text("datasets: [{json_path: rows.jsonl, image_folder: [1]}]")
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "config.json").write_text("[]")
    (tmp_path / "saved").mkdir()
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / "saved" / name).write_text("{}")
    return tmp_path


BAD_INPUT = {
    "no such model": (["check", "no/model"], "hf-vlm-rl check no/model: "),
    "a config that is no object": (["check", "listed"], "config.json of 'listed' is a list"),
    "no store to serve": (
        ["vllm-front", "empty", "--server", "http://gpu:8000", "--store", "gone"],
        "Got --store gone",
    ),
    "no such directory": (["check", "./gone"], "'./gone' is not there. Expected a directory, or a Hub id"),
    "a file for a model": (["check", "./notes.txt"], "'./notes.txt' is a file. Expected a directory"),
    "no model in a folder": (["check", "empty"], "'empty' has no config.json. Expected a directory"),
    "no such image": (["check", "no/model", "--image", "gone.jpg"], "Cannot read the image file 'gone.jpg'"),
    "no image": (["check", "no/model", "--image", "notes.txt"], "not an image that PIL can read"),
    "no model to plan": (["plan", "no/model", "--gpu", "24GB"], "hf-vlm-rl plan no/model: "),
    "no model to convert": (["convert", "no/model", "out"], "hf-vlm-rl convert no/model: "),
    "nothing to convert": (["convert", "empty", "out"], "'empty' has no config.json"),
    "an adapter to check": (["check", "adapter"], "'adapter' is a PEFT adapter. Expected a model, such as"),
    "an adapter to plan": (["plan", "adapter", "--gpu", "1GB"], "such as the adapter's base: 'org/base'"),
    "no model to evaluate": (["eval", "no/model", "rows.jsonl", *REWARD], "hf-vlm-rl eval no/model: "),
    "no such rows": (["eval", "empty", "gone.jsonl", *REWARD], "Cannot read '"),
    "rows cut off": (["eval", "empty", "bad.jsonl", *REWARD], "bad.jsonl"),
    "no rows in a folder": (["eval", "empty", "empty", *REWARD], "empty cannot be read"),
    "no such result": (["eval", "empty", "rows.jsonl", *REWARD, "--before", "gone.json"], "gone.json"),
    "a file for a folder": (["eval", "empty", "rows.jsonl", *REWARD, "--out", "notes.txt"], "notes.txt"),
    "rows nested too deeply": (["eval", "empty", "deep.jsonl", *REWARD], "deep.jsonl, line 1: not JSON"),
    "half a saved dataset": (["eval", "empty", "saved", *REWARD], "saved cannot be read (KeyError: "),
    "a mixture of another form": (["eval", "empty", "mixed.yaml", *REWARD], "the image_folder is [1]"),
    "a result nested too deeply": (
        ["eval", "empty", "rows.jsonl", *REWARD, "--before", "deep.jsonl"],
        "deep.jsonl cannot be read (RecursionError",
    ),
    "no values on a device": (["eval", "empty", "rows.jsonl", *REWARD, "--device", "meta"], "--device meta"),
    "no such device": (["eval", "empty", "rows.jsonl", *REWARD, "--device", "mps:7"], "Got --device mps:7: "),
    "no such folder": (["push", "gone", "user/x"], "Got 'gone', which is no folder"),
    "no adapter": (["push", "empty", "user/x"], "empty has no adapter_model.safetensors"),
    "no store to clean": (
        ["clean", "--older-than", "1", "--directory", "gone"],
        "Got gone, which is no",
    ),
    "a file for the demo": (["demo", "--steps", "8", "--out", "notes.txt"], "notes.txt"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_ends_with_1_and_says_what_is_wrong(arguments, message, folder, capsys):
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["check"],
        ["plan", "model"],
        ["plan", "model", "--gpu", "much"],
        ["plan", "model", "--gpu", "24GB", "--image", "99999x99999"],
        ["check", "model", "--image-size", "99999x99999"],
        ["eval", "model", "rows.jsonl"],
        ["eval", "model", "rows.jsonl", *REWARD, "--limit", "0"],
        ["eval", "model", "rows.jsonl", *REWARD, "--batch-size", "none"],
        ["eval", "model", "rows.jsonl", *REWARD, "--temperature", "nan"],
        ["convert", "model", "out", "--shard-gb", "-1"],
        ["eval", "model", "rows.jsonl", *REWARD, "--dtype", "half"],
        ["clean"],
        ["clean", "--older-than", "0"],
        ["demo", "--steps", "7"],
        ["demo", "--seeds", "0"],
    ],
)
def test_wrong_arguments_end_with_2_and_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("usage: hf-vlm-rl")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    help_text = capsys.readouterr().out
    module, _ = COMMANDS[command]
    assert module.run.__doc__.splitlines()[0] in help_text
    assert "--help" in help_text


def test_the_list_of_commands_says_what_each_does():
    help_text = build_parser().format_help()
    assert all(line in help_text for _, line in COMMANDS.values())


def test_help_needs_no_torch():
    script = (
        "import sys; from hf_vlm_rl.cli.commands import build_parser; build_parser().format_help(); "
        "sys.exit(bool({'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_script_that_trl_does_not_have_ends_with_the_list_of_those_it_has():
    for name in ("grpoo", "grpo.py", "examples/grpo_vqa.py", ""):
        with pytest.raises(SystemExit) as stopped:
            main(["trl", name])
        # Python prints a text to stderr and ends with 1.
        assert re.search(r"\. The installed TRL has .*\bdpo, .*\bgrpo, ", stopped.value.code)


def test_a_reader_that_has_enough_and_an_interrupt_end_without_a_traceback(monkeypatch, capsys):
    shut = f"{sys.executable} -u -m hf_vlm_rl.cli env | head -n 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shut], capture_output=True, text=True, check=True)
    assert (done.stdout, "Traceback" in done.stderr) == ("0\n", False)

    def interrupted(_):
        """What `--help` says."""
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_vlm_rl.cli.env.run", interrupted)
    assert main(["env"]) == 130
    assert capsys.readouterr().err == "hf-vlm-rl env: interrupted\n"


def test_a_process_ends_with_the_status(folder):
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "demo", "--out", "notes.txt"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hf-vlm-rl demo: [Errno 17] File exists: 'notes.txt'")


def test_the_version_needs_no_torch():
    script = (
        "import sys; from hf_vlm_rl.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit as stopped: sys.exit(stopped.code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    ours, theirs = metadata.version("hf-vlm-rl"), metadata.version("transformers")
    assert done.stdout.startswith(f"hf-vlm-rl {ours} (transformers {theirs}, trl ")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Pass base_model='user/base'.", "Pass --base-model user/base."),
        ("or create_pr=True.", "or --create-pr."),
        ("Got base_model=3 and my_base_model=4", "Got --base-model 3 and my_base_model=4"),
        ("Say base_model=<Hub id>", "Say --base-model <Hub id>"),
        ("Got card=None", "Got card=None"),
    ],
)
def test_keyword_arguments_become_flags(message, expected):
    assert in_flags(message, "usage: x [--base-model BASE_MODEL] [--create-pr] folder") == expected
