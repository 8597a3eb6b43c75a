"""The GPU command from end to end, on the CPU with tiny models, with what a GPU machine has and no more."""

import os
import re
import subprocess
import sys

import pytest

from benchmarks.gpu.parts import PARTS
from tests.documents.pages import ROOT

# Extras of this package and packages of its tests: the machine with the card may have none of them.
ABSENT = ("skimage", "matplotlib", "sklearn", "num2words", "timm", "bitsandbytes", "jsonschema", "pytest")

# What `python` runs first: no package of these names is found.
HIDING = f"""
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {ABSENT}
        return None if hidden else PathFinder.find_spec(name, path, target)

sys.meta_path = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
"""

pytestmark = [pytest.mark.trl, pytest.mark.once, pytest.mark.slow]


def command(out, *arguments: str, environment=None) -> subprocess.CompletedProcess:
    line = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--device",
        "cpu",
        "--tiny",
        "--out",
        str(out),
        *arguments,
    ]
    return subprocess.run(
        line, cwd=ROOT, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
    )


@pytest.fixture
def bare(tmp_path) -> dict[str, str]:
    """An environment without the packages of `ABSENT`."""
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    return before_others(tmp_path)


def before_others(folder) -> dict[str, str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {"PYTHONPATH": path}


def test_the_machine_is_as_bare_as_it_is_said_to_be(bare):
    code = f"from importlib.util import find_spec; print([find_spec(name) for name in {ABSENT}])"
    line = [sys.executable, "-c", code]
    assert set(eval(subprocess.check_output(line, env=os.environ | bare, text=True))) == {None}


def test_every_part_runs(tmp_path, bare):
    ended = command(tmp_path, "--seconds", "400", environment=bare)
    text = (tmp_path / "RESULTS.md").read_text()
    assert ended.returncode == 0, text[-3000:] + ended.stderr[-3000:]
    assert f"{len(PARTS)} parts of {len(PARTS)} ended well" in text
    assert all(f"## {planned.title}\n" in text for planned in PARTS.values())
    assert all(line in ended.stdout for line in text.splitlines())
    sharing = re.findall(r"\| internvl \| float32 \| sdpa \| on \| (\d+) in (\d+) \|.*\| same \| ok \|", text)
    assert [int(tokens) > int(computed) for tokens, computed in sharing] == [True]
    for name in ("tiny-internvl", "tiny-qwen2_5_vl", "tiny-qwen3_5"):
        assert re.search(rf"\| {name} \| grpo \|.*\| stock \|", text)
        assert re.search(rf"\| {name} \| grpo \|.*\| policy \|", text)


def test_a_part_ends_when_its_time_is_up(tmp_path):
    ended = command(tmp_path, "--seconds", "2", "--parts", "syncs", "conformance")
    text = (tmp_path / "RESULTS.md").read_text()
    assert ended.returncode == 1
    assert "0 parts of 2 ended well" in text
    assert text.count("its time was up") == 2


def test_a_part_that_breaks_is_told_with_its_traceback(tmp_path):
    (tmp_path / "peft.py").write_text("raise ImportError('broken')\n")
    ended = command(tmp_path, "--parts", "syncs", environment=before_others(tmp_path))
    text = (tmp_path / "RESULTS.md").read_text()
    assert ended.returncode == 1
    assert "0 parts of 1 ended well" in text
    assert "ImportError: broken" in text


def test_without_a_card_it_says_what_to_do(tmp_path):
    line = [sys.executable, "-m", "benchmarks.gpu", "--out", str(tmp_path)]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(line, cwd=ROOT, env=hidden, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no CUDA device" in ended.stderr
    assert "--device cpu --tiny" in ended.stderr
