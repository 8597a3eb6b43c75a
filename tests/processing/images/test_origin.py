"""Stores of several machines: what one lacks comes from an origin, once, and only if it is right."""

import io
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import fsspec
import PIL.Image
import pytest
from fsspec.implementations.local import LocalFileSystem

from hf_vlm_rl import ImageStore, TicketError
from hf_vlm_rl.processing.images.disk import file_path, name
from hf_vlm_rl.processing.images.hashes import image_ticket
from hf_vlm_rl.processing.images.stored import RowNote
from tests.processing.images.noise import files, noise, same


class Counted(LocalFileSystem):
    """Files of this machine, slow to open; says which were."""

    protocol = "counted"
    opened: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("counted://"))

    def _open(self, path, *arguments, **options):
        time.sleep(0.05)
        self.opened.append(os.path.basename(path))
        return super()._open(path, *arguments, **options)


fsspec.register_implementation("counted", Counted)


@pytest.fixture
def node(tmp_path):
    """`node("b")`: the store of that machine; the directory of machine "a" is the origin of the others."""

    def make(machine: str, **options) -> ImageStore:
        origin = options.pop("origin", str(tmp_path / "a"))
        return ImageStore(tmp_path / machine, origin=None if machine == "a" else origin, **options)

    return make


def at_origin(node, ticket: int, suffix: str = ".png"):
    return node("a").directory / file_path(ticket, suffix)


def test_images_notes_videos_and_text_prompts_come_from_the_origin(node):
    first = node("a")
    plain, noted = first.put(noise(0), keep=True), first.put(noise(1), columns={"answer": 1}, keep=True)
    video = first.put_frames([noise(2), noise(3)], {"fps": 1})
    first.put(video, keep=True)
    key = first.text_prompts.keep(7, [1, 2, 3], RowNote({"answer": 2}))
    second = node("b")
    assert second.is_whole(noted)
    assert all(map(second.knows, (plain, noted, video.ticket)))
    assert same(second.get(plain).image, noise(0))
    assert same(second.get(noted).image, noise(1))
    assert (second.row(noted).columns, second.source(noted)) == ({"answer": 1}, image_ticket(noise(1)))
    assert second.get(video.ticket).image == video
    assert same(second.frame(video.frames[1]), noise(3))
    assert second.text_prompts.remember(7, [1, 2, 3, 4], key)
    # `clean` and the bound of what is spilled may remove them: they can be fetched again.
    assert not (second.directory / "kept").exists()


@pytest.fixture
def served(tmp_path):
    """The address of a server of files, over HTTP; machine "a" writes them."""
    (tmp_path / "a").mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "a")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_of_files_is_an_origin(node, served):
    plain = node("a").put(noise(0), keep=True)
    noted = node("a").put(noise(1), columns={"answer": 1}, keep=True)
    second = node("b", origin=served)
    assert same(second.get(plain).image, noise(0))
    assert second.get(noted).columns == {"answer": 1}
    with pytest.raises(TicketError, match="push_images"):
        second.get(image_ticket(noise(2)))


def test_what_was_fetched_needs_the_origin_no_more(node):
    ticket = node("a").put(noise(0), columns={"answer": 1}, keep=True)
    node("b").get(ticket)
    os.rename(node("a").directory, node("a").directory.with_name("gone"))
    assert node("b").get(ticket).columns == {"answer": 1}


@pytest.mark.skipif(os.name == "nt", reason="there are no locks of folders")
def test_a_machine_fetches_each_file_once(node):
    tickets = [node("a").put(noise(seed), columns={"seed": seed}, keep=True) for seed in range(3)]
    Counted.opened.clear()
    origin = f"counted://{node('a').directory}"
    stores = [node("b", origin=origin) for _ in range(4)]
    start = threading.Barrier(4)

    def read(store: ImageStore) -> bool:
        start.wait(60)
        return all(same(store.get(ticket).image, noise(seed)) for seed, ticket in enumerate(tickets))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, stores))
    assert sorted(Counted.opened) == files(stores[0])
    assert len(Counted.opened) == 6


def png(image: PIL.Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def huge() -> bytes:
    content = bytearray(png(noise(0)))
    content[16:24] = (60_000).to_bytes(4, "big") * 2  # the sides in the header
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (png(noise(0))[:300], "is cut off or no PNG"),
        (b"", "is cut off or no PNG"),
        (png(noise(0), "GIF"), "is cut off or no PNG"),
        (huge(), "is cut off or no PNG|pixels, more than HF_VLM_RL_MAX_IMAGE_PIXELS allows"),
        (png(noise(1)), "holds another image than its name says"),
    ],
    ids=["cut off", "empty", "a GIF", "huge", "another image"],
)
def test_a_file_that_is_not_the_image_is_refused_and_not_kept(node, content, told):
    ticket = node("a").put(noise(0), keep=True)
    at_origin(node, ticket).write_bytes(content)
    store = node("b")
    for _ in range(2):
        with pytest.raises(
            TicketError, match=rf"{name(ticket)}\.png of the origin .* ({told}); it was not used"
        ):
            store.get(ticket)
    assert files(store) == []
    at_origin(node, ticket).write_bytes(png(noise(0)))
    assert same(store.get(ticket).image, noise(0))


def test_more_bytes_than_an_image_may_have_are_not_read(node, monkeypatch):
    ticket = node("a").put(noise(0), keep=True)
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "1200")
    with open(at_origin(node, ticket), "ab") as file:
        file.truncate(1 << 40)  # takes no room
    with pytest.raises(TicketError, match=r"has more than 1053376 bytes; it was not used"):
        node("b").get(ticket)


def test_an_image_with_more_pixels_than_this_machine_allows_is_refused(node, monkeypatch):
    ticket = node("a").put(noise(0), keep=True)
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "1199")
    with pytest.raises(TicketError, match="has 40 x 30 pixels, more than HF_VLM_RL_MAX_IMAGE_PIXELS allows"):
        node("b").get(ticket)


def test_an_edited_note_is_refused(node):
    ticket = node("a").put(noise(0), columns={"answer": "cat"}, keep=True)
    path = at_origin(node, ticket, ".json")
    path.write_bytes(path.read_bytes().replace(b"cat", b"dog"))
    with pytest.raises(TicketError, match=r"\.json of the origin .* does not hold what .* it was not used"):
        node("b").get(ticket)


def test_a_link_to_another_file_is_refused_and_says_nothing_of_it(node, tmp_path):
    ticket = node("a").put(noise(0), keep=True)
    (tmp_path / "secret").write_text("the password")
    at_origin(node, ticket).unlink()
    at_origin(node, ticket).symlink_to(tmp_path / "secret")
    with pytest.raises(TicketError, match="is cut off or no PNG") as caught:
        node("b").get(ticket)
    assert "password" not in str(caught.value)


def test_a_ticket_that_nobody_has_names_machine_directory_origin_and_cure(node, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    node("a")
    with pytest.raises(TicketError) as caught:
        node("b").get(image_ticket(noise(0)))
    for part in (
        f"rank 3 of host {socket.gethostname()}",
        "holds nothing at all",
        "nor at the origin",
        "push_images",
    ):
        assert part in str(caught.value)
    for directory in (node("a").directory, node("b").directory):
        assert str(directory) in str(caught.value)


@pytest.mark.parametrize("origin", ["no-such-protocol://images", "https://127.0.0.1:1/images"])
def test_an_origin_that_cannot_be_asked_is_an_error(node, origin):
    with pytest.raises(TicketError, match=f"Cannot ask the origin {origin}"):
        node("b", origin=origin).get(image_ticket(noise(0)))


@pytest.mark.parametrize("obstacle", ["a file in the way", "a bound of one byte"])
def test_a_disk_without_room_does_not_keep_a_machine_from_what_the_origin_has(node, tmp_path, obstacle):
    ticket = node("a").put(noise(0), columns={"answer": 1}, keep=True)
    if obstacle == "a bound of one byte":
        stored = node("b", spill_bytes=1).get(ticket)
    else:
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "spilled").write_text("in the way")
        with pytest.warns(UserWarning, match="Cannot use the image store: Not a directory.*stays in memory"):
            stored = node("b").get(ticket)
    assert stored.columns == {"answer": 1}
    assert same(stored.image, noise(0))


def test_the_environment_names_the_origin(node, tmp_path, monkeypatch):
    ticket = node("a").put(noise(0), keep=True)
    monkeypatch.setenv("HF_VLM_RL_ORIGIN", str(node("a").directory) + "/")
    assert same(ImageStore(tmp_path / "b").get(ticket).image, noise(0))
    monkeypatch.setenv("HF_VLM_RL_ORIGIN", "")
    with pytest.raises(
        TicketError, match=r"neither in memory nor in .*/c, which holds nothing at all\. Whoever"
    ):
        ImageStore(tmp_path / "c").get(ticket)
