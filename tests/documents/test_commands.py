"""Command lines on the pages: they parse, and what they name exists."""

import re
import shlex
import tomllib

import pytest
import yaml

from hf_vlm_rl.cli import commands as cli
from tests.documents.pages import PAGES, ROOT, blocks
from tests.documents.shell import NOT_RUN, commands, reason, run_line, script_of, without_variables

LINES = [
    (name, words)
    for name, path in PAGES.items()
    for block in blocks(path.read_text())
    if block.language == "bash"
    for words in commands(block.source)
]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def script(name: str) -> bool:
    return (ROOT / name).is_file()


def module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    src = ROOT / "src" / name.replace(".", "/")
    return any(p.with_suffix(".py").is_file() or (p / "__main__.py").is_file() for p in (path, src))


def named(words: list[str]) -> bool:
    """Is there what a command line runs?"""
    program, *rest = without_variables(words)
    if program in ("swift", "torchrun"):  # of other projects, as docs/migrate.md has them
        return rest[0] in ("rlhf", "--nproc_per_node")
    if program == "vllm":  # another package's, which is not installed here
        return rest[0] == "serve"
    if program == "lmms-eval":  # it knows this name by an entry point
        return rest[:2] == ["--model", "hf_vlm_rl"]
    if program == "hf-vlm-rl":
        return cli.build_parser().parse_args(rest).command == rest[0]
    if program == "make":
        return set(rest) - {word for word in rest if "=" in word} <= TARGETS
    if program == "pip":
        return rest[0] == "install"
    if program == "register-python-argcomplete":
        return True
    if program in ("python", "accelerate") or (program, rest[0]) == ("uv", "run"):
        files = [word for word in rest if word.endswith((".py", ".yaml")) and "/" in word]
        modules = [rest[i + 1] for i, word in enumerate(rest[:-1]) if word == "-m"]
        return bool(files or modules) and all(map(script, files)) and all(map(module, modules))
    return False


@pytest.mark.parametrize(("page", "words"), LINES, ids=[shlex.join(words)[:60] for _, words in LINES])
def test_the_command_line_is_right(page, words):
    assert named(words), f"{page}: {shlex.join(words)}"


@pytest.mark.parametrize(("page", "words"), LINES, ids=[shlex.join(words)[:60] for _, words in LINES])
def test_the_command_line_runs_or_says_why_not(page, words):
    """tests/documents/test_blocks.py runs it; here a line fails at once that is in neither list."""
    if reason(words) is None and without_variables(words)[0] not in ("hf-vlm-rl", "make"):
        assert script(script_of(words)[0])


def test_every_reason_is_of_a_line():
    lines = [shlex.join(without_variables(words)) for _, words in LINES]
    assert [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in lines)] == []


@pytest.mark.parametrize(
    "line", ["python nothing.py", "curl x", "accelerate launch train.py", "python -m pdb"]
)
def test_a_line_of_no_list_is_told(line):
    with pytest.raises(ValueError, match="neither runs nor says why"):
        script_of(shlex.split(line))


@pytest.mark.slow
@pytest.mark.parametrize("line", ["hf-vlm-rl data check nothing.jsonl", "hf-vlm-rl check ./nothing"])
def test_a_command_that_fails_is_told(line, tmp_path, monkeypatch):
    """The first in a process of its own, the second in a fork."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{line} ended with status 1"):
        run_line(shlex.split(line))


def test_every_extra_that_is_installed_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [word for _, words in LINES if words[:2] == ["pip", "install"] for word in words[2:]]
    extras = {extra for word in asked if word.startswith(".[") for extra in word[2:-1].split(",")}
    assert {word[:1] for word in asked} == {"."}
    assert extras <= set(project["optional-dependencies"])


def test_every_command_has_a_section():
    text = PAGES["docs/command-line.md"].read_text()
    by_use = ["tiny", "data", "check", "plan", "demo", "eval", "try", "convert", "push", "clean", "trl"]
    by_use += ["vllm-front", "env"]
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == sorted(cli.COMMANDS, key=by_use.index)


def test_every_target_that_a_text_names_exists():
    named = {target for path in PAGES.values() for target in re.findall(r"`make ([a-z-]+)", path.read_text())}
    assert len(named) > 3
    assert named <= TARGETS


def test_ci_runs_what_make_test_runs():
    """Through the Makefile, so that a lane is written down once."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"].values()
    lines = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    lanes = {lane for job in jobs for lane in job.get("strategy", {}).get("matrix", {}).get("lane", [])}
    run = {line.removeprefix("make ") for line in lines} - {"${{ matrix.lane }}"} | lanes
    (needed,) = re.findall(r"^LANES = (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(needed.split()) <= run <= TARGETS
