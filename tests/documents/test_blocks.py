"""The code on every page runs, top to bottom, on tiny models, and gives what the page says."""

import copy
import json
import subprocess
import sys

import pytest

from tests.documents.pages import PAGES, ROOT, Block, blocks

PREAMBLES = ROOT / "tests" / "documents" / "preambles"
# Run elsewhere: by tests of their own, `try` in tests/browser.
SKIPPED = ("demo", "trl", "try")


def runnable(text: str) -> list[Block]:
    return [block for block in blocks(text) if block.language in ("python", "bash") and not block.not_run]


def needs_a_run(text: str) -> bool:
    return any(block.language == "python" or "hf-vlm-rl" in block.source for block in runnable(text))


RUN = [name for name, path in PAGES.items() if needs_a_run(path.read_text())]


def preamble(name: str):
    return PREAMBLES / (name.removesuffix(".md").replace("/", "_").replace("-", "_").lower() + ".py")


@pytest.fixture(scope="module")
def runner(environment):
    """The process that runs pages."""
    command = [sys.executable, "-m", "tests.documents.runner"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as process:
        yield process
        process.kill()  # it waits for a page


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_code_of_the_page_runs(name, hub, runner, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "repositories", copy.deepcopy(hub.repositories))  # what a page pushes is gone
    folder = tmp_path / "work"
    page = {
        "name": name,
        "preamble": str(preamble(name)) if preamble(name).exists() else None,
        "skipped": SKIPPED,
        "folder": str(folder),
        "blocks": [vars(block) for block in runnable(PAGES[name].read_text())],
    }
    print(json.dumps(page), file=runner.stdin, flush=True)
    assert runner.stdout.readline() == "done\n"
    error = json.loads(folder.with_suffix(".json").read_text())["error"]
    assert error is None, f"{folder.with_suffix('.log').read_text(errors='replace')[-3000:]}\n{error}"


def test_no_preamble_is_left_over():
    assert {path.name for path in PREAMBLES.glob("*.py")} <= {preamble(name).name for name in RUN}
