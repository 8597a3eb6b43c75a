"""`hf-vlm-rl demo` runs from a checkout and from what a wheel holds."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from hf_vlm_rl.cli import demo

ROOT = Path(__file__).parents[2]


def test_a_wheel_has_the_demo_where_the_command_looks():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    (pair,) = build["targets"]["wheel"]["force-include"].items()
    assert pair == (demo.CHECKOUT.relative_to(ROOT).as_posix(), demo.PACKAGE.replace(".", "/"))
    assert "examples" in build["targets"]["sdist"]["include"]


def test_the_installed_demo_runs(tmp_path):
    """As a wheel lays it out, away from the checkout; so few steps say nothing of accuracy."""
    ignored = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(ROOT / "src" / "hf_vlm_rl", tmp_path / "hf_vlm_rl", ignore=ignored)
    shutil.copytree(demo.CHECKOUT, package / "demo_digits", ignore=ignored)
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "demo", "--steps", "8", "--seed", "4", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "seed 4: accuracy on 500 held-out images" in done.stdout
    (run,) = json.loads((tmp_path / "out" / "figures.json").read_text())["runs"]
    assert [step for step, _ in run["rewards"]] == [8]
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter", "answers.png", "learning_curve.png"} <= made
    assert "8/8" in done.stderr  # the progress bar


def test_what_is_missing_is_named(tmp_path, monkeypatch, capsys):
    from hf_vlm_rl.cli import main

    monkeypatch.setattr(demo, "NEEDED", ("matplotlib", "no_such_package"))
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "The demo needs no_such_package: pip install 'hf-vlm-rl[demo]'" in capsys.readouterr().err
