"""Tickets in the slots of pixels come through what trainers do with pixels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_vlm_rl import TicketError
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets, encode_tickets

ticket = st.integers(-(2**63), 2**63 - 1)
carried = st.lists(st.tuples(ticket, st.none() | st.integers(0, 2**24 - 2)), max_size=6)


@given(carried, st.sampled_from([torch.uint8, torch.int64, torch.float32, torch.float16, torch.bfloat16]))
def test_tickets_survive_a_cast_to_any_dtype_of_a_model(rows, dtype):
    assert decode_tickets(encode_tickets(rows)["pixel_values"].to(dtype)) == rows


@given(carried.filter(bool), st.integers(0, 12), st.integers(1, 2**24 - 1), st.integers(0, 5))
def test_up_to_three_changed_bytes_in_a_row_are_never_read_as_the_ticket(rows, column, change, number):
    pixel_values = encode_tickets(rows)["pixel_values"]
    number %= len(rows)
    pixel_values[number, column : column + 3] ^= torch.tensor(
        list(change.to_bytes(3, "little")), dtype=torch.uint8
    )
    with pytest.raises(TicketError, match=f"image {number} is damaged"):
        decode_tickets(pixel_values)


def test_no_change_of_one_byte_is_read_as_the_ticket():
    """Every one of them: with a checksum of one byte, 6 were."""
    for column in range(15):
        for change in range(1, 256):
            pixel_values = encode_tickets([(0, None)])["pixel_values"]
            pixel_values[0, column] ^= change
            with pytest.raises(TicketError, match="image 0 is damaged"):
                decode_tickets(pixel_values)


@given(carried.filter(bool), st.sampled_from([torch.uint8, torch.bfloat16]))
def test_tickets_in_another_shape_are_refused(rows, dtype):
    tickets = encode_tickets(rows)["pixel_values"].to(dtype)
    for changed in (tickets.repeat(2, 1, 1, 1), tickets[None], tickets[:, None]):
        with pytest.raises(TicketError, match=r"Expected \(images, 15\).*policy\.tokenizer"):
            decode_tickets(changed)


@pytest.mark.parametrize(
    "shape", [(4, 1176), (2, 3, 28, 28), (1, 2, 3, 28, 28), (4, 15), (2, 3, 15), (0, 3, 15)]
)
def test_pixels_are_no_tickets(shape):
    assert decode_tickets(torch.randn(shape)) is None


def test_other_whole_numbers_are_refused():
    with pytest.raises(TicketError, match=r"integer pixel_values of shape \(2, 1\)"):
        decode_tickets(torch.ones(2, 1, dtype=torch.int64))


def test_an_image_may_take_several_rows():
    """As many as a trainer expects of its patches; what is read again is one ticket an image."""
    carried = [(-5, None), (2**62, None), (0, 7)]
    tensors = encode_tickets(carried, [4, 1, 3])
    assert tensors["image_grid_thw"].prod(dim=1).tolist() == [4, 1, 3]
    assert len(tensors["pixel_values"]) == 8
    assert decode_tickets(tensors["pixel_values"]) == carried
    assert decode_tickets(tensors["pixel_values"].to(torch.bfloat16)) == carried
    assert decode_tickets(tensors["pixel_values"][4:]) == carried[1:]
