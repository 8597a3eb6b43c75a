"""The page of `hf-vlm-rl try` under requests that no browser sends: plain HTTP, as any program here could."""

import json
import os
import random
import struct
import threading
import uuid
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import EpsImagePlugin

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.cli.try_it import question_page, serve
from hf_vlm_rl.processing.images.hashes import image_ticket
from hf_vlm_rl.processing.images.read import load_rgb
from tests.images import photo
from tests.loading.adapters.models import write_adapter

CASES = 200


@pytest.fixture(scope="module")
def model(checkpoint, tmp_path_factory):
    base = AutoVLMPolicy.from_pretrained(checkpoint("qwen3_vl"), dtype="float32")
    folder = write_adapter(base, tmp_path_factory.mktemp("try") / "adapter")
    return AutoVLMPolicy.from_pretrained(folder, dtype="float32")


@pytest.fixture(scope="module")
def served(model):
    page = question_page(model, "user/<img src=x onerror=alert(1)>", max_new_tokens=3, do_sample=False)
    yield serve(page, prevent_thread_lock=True, quiet=True)
    page.close()


@pytest.fixture
def client(served):
    with httpx.Client(base_url=served, timeout=60, trust_env=False) as client:
        yield client


def ask(client, image, question="What?"):
    """The answers (base, boxes, adapter, boxes), or the error's text."""
    session = uuid.uuid4().hex
    body = {"data": [image, question], "fn_index": 0, "session_hash": session}
    joined = client.post("/gradio_api/queue/join", json=body)
    if joined.status_code != 200:
        return f"{joined.status_code}"
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as events:
        for line in events.iter_lines():
            event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
            if event.get("msg") == "process_completed":
                output = event["output"]
                return output["data"] if event["success"] else f"error: {output.get('error')}"
    raise AssertionError("no answer")


def upload(client, name: str, content: bytes) -> dict:
    (path,) = client.post("/gradio_api/upload", files={"files": (name, content)}).raise_for_status().json()
    return {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def png(image=None, **options) -> bytes:
    out = BytesIO()
    (image or photo("cat", (40, 30))).save(out, "PNG", **options)
    return out.getvalue()


def answered(said) -> bool:
    return isinstance(said, list) and all(isinstance(said[place], str) for place in (0, 2))


def huge() -> bytes:
    """A PNG whose header says 100,000 x 100,000."""
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    parts = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_what_an_image_may_be_and_what_not(client, tmp_path):
    moving = BytesIO()
    frames = [photo("cat", (40, 30 + number)) for number in range(3)]
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:])
    assert answered(ask(client, upload(client, "a.gif", moving.getvalue())))  # its first frame
    assert answered(ask(client, upload(client, "../../a b%2e%2e.png", png())))
    refused = {
        "huge.png": (huge(), "pixels"),
        "cut.png": (png()[:-500], "truncated"),
        "empty.png": (b"", "not an image"),
        "page.html": (b"<script>alert(1)</script>", "not an image"),
        "a.svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "not an image"),
    }
    for name, (content, why) in refused.items():
        said = ask(client, upload(client, name, content))
        assert isinstance(said, str), name
        assert why in said, (name, said)


def test_pixels_reach_the_model_as_those_of_the_file(client, model):
    """Neither converted nor written anew on the way: a grey JPEG, a CMYK one, a palette."""
    for number, (mode, kind) in enumerate((("L", "JPEG"), ("CMYK", "JPEG"), ("P", "GIF"), ("RGBA", "PNG"))):
        out = BytesIO()
        photo("cat", (40, 31 + number)).convert(mode).save(out, kind, quality=40)
        ticket = image_ticket(load_rgb(out.getvalue()))
        assert not model.processing_class.image_store.knows(ticket)
        assert answered(ask(client, upload(client, f"{number}.{kind.lower()}", out.getvalue())))
        assert model.processing_class.image_store.knows(ticket), mode


def test_postscript_starts_no_program(client, monkeypatch, tmp_path):
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    for number, mode in enumerate(("L", "RGB", "CMYK")):
        out = BytesIO()
        photo("cat", (40, 30)).convert(mode).save(out, "EPS")
        for name in (f"{number}.eps", f"{number}.png"):
            assert "not an image" in ask(client, upload(client, name, out.getvalue()))
    assert not (tmp_path / "started").exists()


def test_no_file_of_this_machine_and_no_address_is_read(client, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(photo("moon", (40, 30))))
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        kept = upload(client, "cat.png", png())["path"]
        up = "../" * 30
        for path in (
            str(secret),
            f"{up[:-1]}{secret}",
            f"{Path(kept).parent}/{up}{secret}",
            f"file://{secret}",
            address,
        ):
            for extra in ({}, {"url": address}, {"url": f"file://{secret}"}, {"is_stream": True}):
                said = ask(
                    client,
                    {"path": path, "orig_name": "a.png", "meta": {"_type": "gradio.FileData"}, **extra},
                )
                assert isinstance(said, str), (path, extra)
            for prefix in ("/gradio_api/file=", "/gradio_api/file/", "/file=", "/gradio_api/proxy="):
                assert client.get(prefix + path).status_code in (400, 403, 404, 405), path
        server.shutdown()
    assert asked == []


def test_drawn_requests_end_in_an_answer_or_an_error_and_the_page_goes_on(client):
    drawn = random.Random(0)
    good = upload(client, "cat.png", png())
    expected = ask(client, good)
    atoms = [
        None,
        True,
        0,
        -1,
        1e308,
        "",
        " ",
        "\0",
        "<b>x</b>",
        "\N{GRINNING FACE}" * 9,
        "x" * 5000,
        [],
        {},
        [[]],
        good,
    ]
    ends = Counter()
    for _ in range(CASES):
        image, question = (_value(drawn, atoms) for _ in range(2))
        said = ask(client, image, question)
        assert isinstance(said, str) or answered(said)
        ends["error" if isinstance(said, str) else "answer"] += 1
        if ends.total() % 40 == 0:
            assert ask(client, good) == expected
    assert min(ends.values()) >= 5, ends


def _value(drawn, atoms, depth=2):
    if depth == 0 or drawn.random() < 0.6:
        return drawn.choice(atoms)
    if drawn.random() < 0.5:
        return [_value(drawn, atoms, depth - 1) for _ in range(drawn.randint(0, 3))]
    keys = ("path", "url", "orig_name", "meta", "size", "__type__", "is_file")
    return {drawn.choice(keys): _value(drawn, atoms, depth - 1) for _ in range(drawn.randint(0, 4))}


def test_questions_at_once_get_the_answers_that_each_alone_gets(served, client):
    """One model answers with and without its adapter: no request may see the state of another."""
    images = [upload(client, f"{number}.png", png(photo("cat", (40, 30 + number)))) for number in range(6)]
    alone = [ask(client, image) for image in images]

    def again(image):
        with httpx.Client(base_url=served, timeout=60, trust_env=False) as own:
            return ask(own, image)

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(again, images)) == alone


def test_pages_of_others_may_not_ask(client):
    said = client.options(
        "/gradio_api/queue/join",
        headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"},
    )
    assert said.headers.get("access-control-allow-origin") in (None, "")


def test_what_is_written_is_text_and_no_page(client):
    components = client.get("/config").json()["components"]
    shown = {each["type"]: each["props"] for each in components}
    assert shown["markdown"]["sanitize_html"] is True
    assert {"image", "annotatedimage", "textbox"} <= shown.keys()
    assert {"html", "code", "iframe", "chatbot"}.isdisjoint(shown)
