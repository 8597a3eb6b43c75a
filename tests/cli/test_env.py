"""`hf-vlm-rl env` says what a report of an error needs, and nothing of the user; shells complete commands."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from hf_vlm_rl.cli import env, main


@pytest.mark.slow
def test_versions_device_and_what_is_made_of_a_model(checkpoint, capsys):
    folder = checkpoint("internvl")
    assert main(["env", "--model", str(folder)]) == 0
    said = capsys.readouterr().out
    values = dict(re.split(r":\s+", line, maxsplit=1) for line in said.splitlines())
    for package in ("hf-vlm-rl", "torch", "transformers", "trl", "peft", "accelerate", "datasets"):
        assert values[package] == version(package)
    assert values["huggingface-hub"] == version("huggingface_hub")
    assert values["python"] == ".".join(map(str, sys.version_info[:3]))
    assert values["TRL's trainers"] == "can be imported"
    assert any(name.startswith("device") for name in values)
    assert values["family"].startswith("internvl, ")
    assert values["sharing"].startswith("rows that begin alike share their prompts")
    assert str(folder) not in said
    assert str(Path.home()) not in said


def test_what_is_no_model_is_named(tmp_path, capsys):
    assert main(["env", "--model", str(tmp_path)]) == 1
    assert f"hf-vlm-rl env {tmp_path}: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_in_the_place_of_vllm_is_explained(tmp_path, monkeypatch):
    (tmp_path / "vllm").mkdir()
    monkeypatch.chdir(tmp_path)
    said = dict(env.trainers())
    assert said["TRL's trainers"] == "cannot be imported: Invalid version: 'N/A'"
    assert "the folder vllm" in said["why"]
    # The same where it comes up: in a script of TRL's.
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "trl", "grpo", "--model_name_or_path", "nothing"]
    command += ["--dataset_name", "nothing", "--use_cpu", "--bf16", "False"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "hf-vlm-rl trl: TRL takes the folder vllm for the package. To mend it: mv vllm" in ended.stderr
    subprocess.run(said["to mend it"], shell=True, check=True)
    assert dict(env.trainers()) == {"TRL's trainers": "can be imported"}


WITHOUT_REQUESTS = """
import sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name == "requests":
            raise ModuleNotFoundError("No module named 'requests'", name=name)

sys.meta_path.insert(0, Missing)
"""


@pytest.mark.slow
@pytest.mark.skipif(Version(version("trl")) >= Version("1.14"), reason="TRL 1.14 and newer need no requests")
def test_trl_without_requests_is_explained(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_REQUESTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    said = dict(env.trainers())
    assert said["TRL's trainers"] == "cannot be imported: No module named 'requests'"
    assert said["to mend it"] == "pip install requests"


def test_an_error_is_said_without_the_paths_in_it(tmp_path, monkeypatch):
    """With a file in the place of TRL: imports look into the current folder first."""
    place = Path.home() / "lib/python/vllm.so"
    (tmp_path / "trl.py").write_text(f"raise ImportError('{place}: undefined symbol: sum of org/model')")
    monkeypatch.chdir(tmp_path)
    said = "cannot be imported: vllm.so: undefined symbol: sum of org/model"
    assert dict(env.trainers()) == {"TRL's trainers": said}


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("print('INFO: loaded'); DPOTrainer = GRPOTrainer = SFTTrainer = object", "can be imported"),
        ("import os; os.abort()", "cannot be imported: status -6"),
    ],
)
def test_an_import_that_talks_or_ends_python_is_told_apart(does, said, tmp_path, monkeypatch):
    (tmp_path / "trl.py").write_text(does)
    monkeypatch.chdir(tmp_path)
    assert dict(env.trainers()) == {"TRL's trainers": said}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hf-vlm-rl ti", {"tiny"}),
        ("hf-vlm-rl plan model --prec", {"--precision"}),
        ("hf-vlm-rl demo d", {"digits"}),
    ],
)
def test_a_shell_completes(line, expected, tmp_path):
    """As argcomplete's function in bash asks."""
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "out"),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([sys.executable, "-m", "hf_vlm_rl.cli"], env=os.environ | asked, check=True)
    assert {word.strip() for word in (tmp_path / "out").read_text().splitlines()} == expected
