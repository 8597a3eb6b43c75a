"""`hf-vlm-rl env` says what a report of an error needs, and nothing of the user; shells complete commands."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from hf_vlm_rl.cli import main


def test_versions_device_and_what_is_made_of_a_model(checkpoint, capsys):
    folder = checkpoint("internvl")
    assert main(["env", "--model", str(folder)]) == 0
    said = capsys.readouterr().out
    values = dict(re.split(r":\s+", line, maxsplit=1) for line in said.splitlines())
    for package in ("hf-vlm-rl", "torch", "transformers", "trl", "peft", "accelerate", "datasets"):
        assert values[package] == version(package)
    assert values["huggingface_hub"] == version("huggingface_hub")
    assert values["python"] == ".".join(map(str, sys.version_info[:3]))
    assert any(name.startswith("device") for name in values)
    assert values["family"].startswith("internvl, ")
    assert values["sharing"].startswith("rows that begin alike share their prompts")
    assert str(folder) not in said
    assert str(Path.home()) not in said


def test_what_is_no_model_is_named(tmp_path, capsys):
    assert main(["env", "--model", str(tmp_path)]) == 1
    assert f"hf-vlm-rl env {tmp_path}: " in capsys.readouterr().err


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
