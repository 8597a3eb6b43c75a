"""Images at http(s) addresses in the rows of a loader: fetched within bounds, when a row is read."""

import functools
import json
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hf_vlm_rl import ImageError
from hf_vlm_rl.data import load_llava
from tests.data.files import llava
from tests.images import photo

# What `import aiohttp` does where it is not installed, whether it is here or not.
WITHOUT = """
import importlib.machinery, sys

class Missing(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        return None if name.partition(".")[0] == "aiohttp" else super().find_spec(name, *rest)

path_finder = importlib.machinery.PathFinder
sys.meta_path[:] = [Missing if finder is path_finder else finder for finder in sys.meta_path]

from hf_vlm_rl.data import load_llava

for options in ({}, {"verify_images": True}, {"check_images": False}):
    (row,) = load_llava(sys.argv[1], **options)
    print(row["images"][0].size)
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def address(tmp_path, monkeypatch):
    """The address of a photo of 40 x 30 pixels on this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "served").mkdir()
    photo("cat", (40, 30)).save(tmp_path / "served" / "cat.png")
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/cat.png"
    server.shutdown()
    server.server_close()


@pytest.fixture
def rows(tmp_path, address):
    (tmp_path / "rows.jsonl").write_text(json.dumps(llava("<image>What is it?", "a cat", image=address)))
    return tmp_path / "rows.jsonl"


def test_an_image_at_an_address_is_fetched_when_its_row_is_read(rows):
    (image,) = load_llava(rows)[0]["images"]
    assert image.tobytes() == photo("cat", (40, 30)).tobytes()


def test_the_bounds_of_fetching_hold(rows, monkeypatch):
    dataset = load_llava(rows)
    monkeypatch.setenv("HF_VLM_RL_FETCH", "0")
    with pytest.raises(ImageError, match=r"^Row 0: Got the image 'http.*HF_VLM_RL_FETCH is 0"):
        dataset[0]


def test_no_client_beyond_ours_is_needed(rows):
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, rows], capture_output=True, text=True, timeout=300, check=True
    )
    assert ran.stdout.splitlines() == ["(40, 30)"] * 3
