"""The code on every page runs, top to bottom, on tiny models, and gives what the page says."""

import copy
import json
import shutil
import subprocess
import sys

import pytest

from tests.documents.pages import PAGES, ROOT, Block, blocks
from tests.documents.shell import commands, reason

PREAMBLES = ROOT / "tests" / "documents" / "preambles"


def runnable(text: str) -> list[Block]:
    return [block for block in blocks(text) if block.language in ("python", "bash") and not block.not_run]


def needs_a_run(text: str) -> bool:
    return any(
        block.language == "python" or any(reason(words) is None for words in commands(block.source))
        for block in runnable(text)
    )


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


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What a clone of the repository would have, with what is not committed yet; nothing that git ignores."""
    folder = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_code_of_the_page_runs(name, hub, runner, clone, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "repositories", copy.deepcopy(hub.repositories))  # what a page pushes is gone
    folder = tmp_path / "work"
    page = {
        "name": name,
        "preamble": str(preamble(name)) if preamble(name).exists() else None,
        "clone": str(clone),
        "folder": str(folder),
        "blocks": [vars(block) for block in runnable(PAGES[name].read_text())],
    }
    print(json.dumps(page), file=runner.stdin, flush=True)
    assert runner.stdout.readline() == "done\n"
    error = json.loads(folder.with_suffix(".json").read_text())["error"]
    assert error is None, f"{folder.with_suffix('.log').read_text(errors='replace')[-3000:]}\n{error}"


def test_no_preamble_is_left_over():
    assert {path.name for path in PREAMBLES.glob("*.py")} <= {preamble(name).name for name in RUN}
