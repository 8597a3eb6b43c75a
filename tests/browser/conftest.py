"""Pages in a real browser: `make site-check`, in an environment of its own."""

import functools
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import threading

import pytest

from tests.documents.pages import ROOT

# Elsewhere there is no driver of browsers, and nothing to collect.
INSTALLED = importlib.util.find_spec("playwright") is not None
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]

HOST = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "user/hf_vlm_rl"}
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder with the built site."""
    folder = tmp_path_factory.mktemp("pages") / "site"
    command = [sys.executable, "docs/make_site.py", "--site", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | HOST, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def address(site):
    """Where the site is served; the search does not work from a disk."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "no Chromium: tests/browser/run.sh installs it"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def failure(request) -> list[str]:
    """Why a request failed; one that the page itself broke off did not."""
    return [] if request.failure == "net::ERR_ABORTED" else [f"{request.url}: {request.failure}"]


@pytest.fixture
def open_page(browser):
    """`open_page(size)`: an empty page, "desktop" or "phone"; what its console says is in `page.said`."""
    contexts = []

    def opened(size: str = "desktop", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.said = []
        page.on("console", lambda line: page.said.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("requestfailed", lambda request: page.said.extend(failure(request)))
        return page

    yield opened
    for context in contexts:
        context.close()
