"""`hf-vlm-rl demo` runs from a checkout and from what a wheel holds."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hf_vlm_rl.cli import demo, main

ROOT = Path(__file__).parents[2]


def test_a_wheel_has_the_demos_where_the_command_looks():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    folders = {each.folder for each in demo.DEMOS.values()}
    expected = {f"examples/{folder}": f"hf_vlm_rl/{folder}" for folder in folders}
    assert build["targets"]["wheel"]["force-include"] == expected
    assert all((ROOT / folder).is_dir() for folder in expected)
    assert "examples" in build["targets"]["sdist"]["include"]


@pytest.mark.slow
def test_the_installed_demo_runs(tmp_path):
    """As a wheel lays it out, away from the checkout; so few steps say nothing of accuracy."""
    ignored = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(ROOT / "src" / "hf_vlm_rl", tmp_path / "hf_vlm_rl", ignore=ignored)
    for each in demo.DEMOS.values():
        shutil.copytree(ROOT / "examples" / each.folder, package / each.folder, ignore=ignored)
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "demo", "--steps", "8", "--seed", "4", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "seed 4: accuracy on 500 held-out images" in done.stdout
    (run,) = json.loads((tmp_path / "out" / "figures.json").read_text())["runs"]
    assert [step for step, _ in run["rewards"]] == [8]
    made = {path.name for path in (tmp_path / "out").iterdir()}
    table = (ROOT / "docs" / "quickstart.md").read_text().partition("`demo_out` afterwards")[2]
    assert made == set(re.findall(r"^\| `([\w.]+)/?` \|", table, flags=re.MULTILINE))
    assert "8/8" in done.stderr  # the progress bar
    assert "Warning" not in done.stderr


def test_what_is_missing_is_named(tmp_path, monkeypatch, capsys):
    digits = dataclasses.replace(demo.DEMOS["digits"], needed=("matplotlib", "no_such_package"))
    monkeypatch.setitem(demo.DEMOS, "digits", digits)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "The demo needs no_such_package: pip install '.[demo]'" in capsys.readouterr().err
