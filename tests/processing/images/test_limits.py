"""What a row of a dataset may cost: pixels, bytes and hosts are bounded before anything is spent."""

import io
import json
import struct
import threading
import time
import tracemalloc
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import PIL.Image
import pytest

from hf_vlm_rl import DataError, ImageError, ImageStore, TicketError
from hf_vlm_rl.data import load_llava
from hf_vlm_rl.processing.images import fetch as fetch_module
from hf_vlm_rl.processing.images.read import MAX_IMAGE_PIXELS, load_rgb
from tests.images import photo

pytestmark = pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def black(width: int, height: int) -> bytes:
    """A PNG of one bit per pixel."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    packer, rows = zlib.compressobj(9), bytearray()
    for _ in range(height):
        rows += packer.compress(bytes((width + 7) // 8 + 1))
    rows += packer.flush()
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", bytes(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


BOMB = black(13_000, 13_000)


@pytest.fixture
def bomb(tmp_path):
    (tmp_path / "bomb.png").write_bytes(BOMB)
    return tmp_path / "bomb.png"


@pytest.mark.parametrize("form", [str, lambda path: {"path": str(path)}, PIL.Image.open], ids=range(3))
def test_too_many_pixels_are_refused_before_they_are_decoded(bomb, form):
    assert len(BOMB) < 25_000
    small = bomb.with_name("small.png")
    small.write_bytes(black(8, 8))
    load_rgb(form(small))  # what is imported on first use is not the image's
    image = form(bomb)
    tracemalloc.start()
    with pytest.raises(ImageError) as caught:
        load_rgb(image)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected = ["13000 x 13000 pixels", str(MAX_IMAGE_PIXELS), "HF_VLM_RL_MAX_IMAGE_PIXELS"]
    if form is not PIL.Image.open:
        expected.append("bomb.png")
    assert [part for part in expected if part not in str(caught.value)] == []
    assert peak < 64 << 20  # its pixels are 507 MB


def test_loaders_that_verify_images_refuse_them_with_the_line(bomb):
    rows = bomb.parent / "rows.jsonl"
    row = {"image": bomb.name, "conversations": [{"from": "human", "value": "What is it?"}]}
    row["conversations"].append({"from": "gpt", "value": "Nothing."})
    rows.write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"line 1.*bomb\.png.*13000 x 13000 pixels, more than"):
        load_llava(rows, verify_images=True)


def test_what_pil_itself_refuses_is_told_with_both_limits():
    limits = r"raise PIL\.Image\.MAX_IMAGE_PIXELS and HF_VLM_RL_MAX_IMAGE_PIXELS"
    with pytest.raises(ImageError, match=rf"bytes: Image size \(196000000 pixels\) exceeds limit.*{limits}"):
        load_rgb(black(14_000, 14_000))


def test_the_limit_is_256_mib_of_rgb_and_can_be_chosen(monkeypatch):
    assert MAX_IMAGE_PIXELS * 3 <= 256 << 20
    image = photo("cat", (40, 30))
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "1200")
    assert load_rgb(image).size == (40, 30)
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "1199")
    for form in (image, np.asarray(image), encoded(image)):
        with pytest.raises(ImageError, match="40 x 30 pixels, more than 1199"):
            load_rgb(form)


def test_no_image_is_stored_that_pil_would_not_read_again(monkeypatch, tmp_path):
    image = photo("cat", (40, 30))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 599)
    with pytest.raises(ImageError, match="40 x 30 pixels, more than 1198"):
        load_rgb(np.asarray(image))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", None)
    ticket = ImageStore(tmp_path).put(load_rgb(image), keep=True)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 599)  # as in another process
    with pytest.raises(TicketError, match=r"Image size \(1200 pixels\) exceeds.*in this process, too"):
        ImageStore(tmp_path).get(ticket)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1e9", ""])
def test_a_limit_that_is_no_number_is_named(monkeypatch, value):
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", value)
    with pytest.raises(ImageError, match=f"HF_VLM_RL_MAX_IMAGE_PIXELS='{value}'"):
        load_rgb(photo("cat", (40, 30)))


def encoded(image: PIL.Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


class Host(BaseHTTPRequestHandler):
    """Answers with an image, too much, too late, or somewhere else."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def do_GET(self):
        name, _, rest = self.path[1:].partition("/")
        getattr(self, f"answer_{name}")(rest)

    def log_message(self, *_):
        pass

    def head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def answer_image(self, _):
        data = encoded(photo("cat", (40, 30)))
        self.head(200, Content_Length=str(len(data)))
        self.wfile.write(data)

    def answer_gone(self, _):
        self.head(404, Content_Length="0")

    def answer_page(self, _):
        self.head(200, Content_Length="6")
        self.wfile.write(b"<html>")

    def answer_bomb(self, _):
        self.head(200, Content_Length=str(len(BOMB)))
        self.wfile.write(BOMB)

    def answer_hops(self, rest):
        left = int(rest)
        self.head(302, Location=f"/hops/{left - 1}" if left else "/image", Content_Length="0")

    def answer_to(self, rest):
        self.head(302, Location=rest, Content_Length="0")

    def answer_endless(self, _):
        self.close_connection = True
        self.head(200, Connection="close")
        try:
            while True:
                self.wfile.write(bytes(1 << 20))
                type(self).sent += 1 << 20
        except OSError:
            pass

    def answer_slowly(self, _):
        self.close_connection = True
        self.head(200, Connection="close")
        try:
            for _ in range(100):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass

    def without_end(self, first: bytes, part: bytes) -> None:
        self.close_connection = True
        try:
            self.wfile.write(first)
            while True:
                self.wfile.write(part)
                type(self).sent += len(part)
                time.sleep(0.01)
        except OSError:
            pass

    def answer_headers(self, _):
        self.without_end(b"HTTP/1.1 200 OK\r\n", b"X-Part: x\r\n")

    def answer_longheaders(self, _):
        self.without_end(b"HTTP/1.1 200 OK\r\n", b"X-Part: " + bytes(b"x" * 60_000) + b"\r\n")

    def answer_hints(self, _):
        self.without_end(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")

    def answer_trailers(self, _):
        start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
        self.without_end(start, b"X-Part: x\r\n")

    def answer_largeredirect(self, _):
        start = b"HTTP/1.1 302 Found\r\nLocation: /image\r\nContent-Length: 10000000000\r\n\r\n"
        self.without_end(start, bytes(1 << 20))

    def answer_never(self, _):
        self.close_connection = True
        time.sleep(3)


@pytest.fixture(scope="module")
def host():
    """The address of a server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_VLM_RL_FETCH", raising=False)


@pytest.mark.parametrize("path", ["image", "hops/0", "hops/4"])
def test_an_image_is_fetched_through_few_redirects(host, path):
    for form in (f"{host}/{path}", {"url": f"{host}/{path}"}):
        assert load_rgb(form).tobytes() == photo("cat", (40, 30)).tobytes()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone", "Cannot fetch the image .*404"),
        ("hops/5", "Cannot fetch the image .*redirect"),
        ("to/file:///etc/passwd", "Cannot fetch the image"),
        ("to/ftp://127.0.0.1/image", "Cannot fetch the image .*ftp"),
        ("page", "the body of 'http://127.*page': not an image that PIL can read"),
        ("bomb", "13000 x 13000 pixels, more than"),
    ],
)
def test_what_an_address_may_not_answer_is_named(host, path, message):
    with pytest.raises(ImageError, match=message):
        load_rgb(f"{host}/{path}")


def test_a_body_without_end_is_cut(host):
    Host.sent = 0
    tracemalloc.start()
    with pytest.raises(ImageError, match=r"Cannot fetch the image .*body is larger than 64 MiB"):
        load_rgb(f"{host}/endless")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 160 << 20  # the body, once copied as it grows
    time.sleep(0.2)
    assert Host.sent < 80 << 20  # what buffers of the connection hold comes on top


def test_headers_are_bounded_in_bytes_and_bodies_of_redirects_are_not_read(host):
    Host.sent = 0
    with pytest.raises(ImageError, match="Cannot fetch the image"):
        load_rgb(f"{host}/longheaders")
    assert load_rgb(f"{host}/largeredirect").size == (40, 30)
    time.sleep(0.2)
    assert Host.sent < 16 << 20


def test_an_answer_that_does_not_come_or_end_is_given_up(host, monkeypatch):
    monkeypatch.setattr(fetch_module, "WAIT_SECONDS", 0.3)
    monkeypatch.setattr(fetch_module, "TOTAL_SECONDS", 0.3)
    late = ("slowly", "headers", "hints", "trailers")
    for path, message in (
        ("never", "timed out|longer"),
        *((each, "longer than 0.3 seconds") for each in late),
    ):
        with pytest.raises(ImageError, match=f"Cannot fetch the image .*{message}"):
            load_rgb(f"{host}/{path}")


def test_nothing_is_fetched_where_the_environment_forbids_it(host, monkeypatch):
    monkeypatch.setenv("HF_VLM_RL_FETCH", "0")
    with pytest.raises(ImageError, match=r"image 'http://127.*forbids to fetch: HF_VLM_RL_FETCH is 0"):
        load_rgb(f"{host}/image")
