"""Two images with one ticket, found by 2^33 hashes: a store never hands out one for the other."""

import struct

import PIL.Image
import pytest

from hf_vlm_rl import ImageStore, TicketError
from hf_vlm_rl.processing.images.hashes import image_ticket
from tests.processing.images.noise import noise, same


def image(number: int) -> PIL.Image.Image:
    return PIL.Image.frombytes("RGB", (3, 1), struct.pack("<Q", number) + b"\0")


PAIR = image(0x2DEA1FDE637FA9E6), image(0x3E4467B79F3C53EF)
MESSAGE = "Two images, or two rows, have the ticket 81db8e7292622635"


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def pair(request):
    return PAIR[request.param], PAIR[1 - request.param]


def test_the_two_images_have_one_ticket():
    assert PAIR[0].tobytes() != PAIR[1].tobytes()
    assert image_ticket(PAIR[0]) == image_ticket(PAIR[1])


def test_the_second_of_two_images_in_memory_is_refused(tmp_path, pair):
    store = ImageStore(tmp_path / "images")
    ticket = store.put(pair[0])
    with pytest.raises(TicketError, match=MESSAGE):
        store.put(pair[1])
    assert store.put(pair[0]) == ticket
    assert same(store.get(ticket).image, pair[0])


@pytest.mark.parametrize("keep", [False, True])
def test_it_is_refused_after_the_first_left_memory(tmp_path, pair, keep):
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    ticket = store.put(pair[0])
    store.put(noise(0))
    assert len(store) == 1
    with pytest.raises(TicketError, match=MESSAGE):
        store.put(pair[1], keep=keep)
    assert same(store.get(ticket).image, pair[0])


@pytest.mark.parametrize("keep", [False, True])
def test_it_is_refused_where_another_process_kept_the_first(tmp_path, pair, keep):
    ticket = ImageStore(tmp_path / "images").put(pair[0], keep=True)
    store = ImageStore(tmp_path / "images")
    with pytest.raises(TicketError, match=MESSAGE):
        store.put(pair[1], keep=keep)
    assert same(store.get(ticket).image, pair[0])


ROWS = {"by": "dc3e6a9584bab3b6"}, {"by": "1743ecba9768a2f2"}


@pytest.mark.parametrize("apart", [False, True], ids=["in memory", "kept by another process"])
def test_of_two_rows_with_one_ticket_the_second_is_refused(tmp_path, apart):
    black = PIL.Image.new("RGB", (3, 1))
    store = ImageStore(tmp_path / "images")
    ticket = store.put(black, columns=ROWS[0], keep=apart)
    if apart:
        store = ImageStore(tmp_path / "images")
    with pytest.raises(TicketError, match="Two images, or two rows, have the ticket fa9badf61fcc9e73"):
        store.put(black, columns=ROWS[1], keep=apart)
    assert store.get(ticket).columns == ROWS[0]


def test_as_a_frame_of_a_video_it_is_refused(tmp_path, pair):
    with pytest.raises(TicketError, match=MESSAGE):
        ImageStore(tmp_path / "images").put_frames(pair, {})
