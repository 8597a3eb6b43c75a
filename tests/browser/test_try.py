"""`hf-vlm-rl try` on a tiny adapter, in a browser."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from urllib.parse import urlsplit

import pytest

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.cli.try_it import question_page, serve
from tests.browser.checks import faults
from tests.documents.pages import ROOT
from tests.evaluation.forced import Says
from tests.images import photo
from tests.loading.adapters.models import write_adapter

TEXT = '{"bbox_2d": [250, 250, 750, 750], "label": "cat"}'


@pytest.fixture(scope="module")
def adapter(checkpoint, tmp_path_factory):
    """The folder of a random adapter of a tiny Qwen3-VL, which writes boxes in thousandths."""
    base = AutoVLMPolicy.from_pretrained(checkpoint("qwen3_vl"), dtype="float32")
    return write_adapter(base, tmp_path_factory.mktemp("try") / "adapter")


@pytest.fixture(scope="module")
def served(adapter):
    """Address of the page of a model that can only write one box."""
    model = AutoVLMPolicy.from_pretrained(adapter, dtype="float32")
    says = Says(model.processing_class, TEXT)
    page = question_page(model, "user/adapter", prefix_allowed_tokens_fn=says)
    yield serve(page, prevent_thread_lock=True, quiet=True)
    page.close()


@pytest.fixture
def picture(tmp_path):
    photo("cat", (160, 120)).save(tmp_path / "cat.png")
    return tmp_path / "cat.png"


def ask(page, question: str, picture=None) -> None:
    if picture is not None:
        page.locator("input[type=file]").first.set_input_files(picture)
        page.get_by_role("img").first.wait_for()
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask").click()


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_both_answers_are_shown_and_their_boxes_drawn(size, served, picture, open_page):
    page = open_page(size)
    asked = []
    page.on("request", lambda request: asked.append(urlsplit(request.url)))
    page.goto(served)
    ask(page, "Where is the cat?", picture)
    page.get_by_text("Adapter: boxes").wait_for()
    for side in ("Base", "Adapter"):
        assert page.get_by_label(side, exact=True).input_value() == TEXT
    assert page.get_by_text("cat", exact=True).count() == 2  # the label of a box on either side
    assert {url.hostname for url in asked if url.scheme.startswith("http")} == {"127.0.0.1"}
    assert not faults(page)


def test_what_is_wrong_with_a_question_is_said(served, open_page):
    page = open_page()
    page.goto(served)
    ask(page, " ")
    page.get_by_text("Got an empty question").wait_for()


def test_the_command_serves_the_page(adapter, open_page):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--device", "cpu", "--max-new-tokens", "4"]
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "try", str(adapter), *options]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}", process)
            page = open_page()
            page.goto(f"http://127.0.0.1:{port}")
            ask(page, "What is it?")
            page.wait_for_function(
                "[...document.querySelectorAll('textarea')].filter(each => each.value).length == 3"
            )
        finally:
            process.terminate()


def wait_for(address: str, process: subprocess.Popen, seconds: int = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{address} did not answer; exit status {process.poll()}")


def test_a_model_without_an_adapter_is_refused(checkpoint, capsys):
    assert cli.main(["try", str(checkpoint("qwen3_vl")), "--device", "cpu"]) == 1
    assert "which is no adapter" in capsys.readouterr().err
