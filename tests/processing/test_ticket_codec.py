"""The ticket codec: any ticket, any alphabet, any row; and nothing but whole tickets."""

import functools
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_vlm_rl import TicketCodec, TicketError

PLACEHOLDER, PAD, EOS, BREAK = 0, 1, 2, 3
SPECIAL = (PAD, EOS, BREAK)
FIRST_ORDINARY = 10
SIGNED_64 = st.integers(-(2**63), 2**63 - 1)
SIZES = (2, 3, 4, 7, 31, 256, 400, 1000, 32_000, 65_536, 151_643, 200_000)


@functools.cache
def codec_of(size: int) -> TicketCodec:
    return TicketCodec(PLACEHOLDER, range(FIRST_ORDINARY, FIRST_ORDINARY + size))


@dataclass(frozen=True)
class Row:
    """A clean row of ids, with the images in it."""

    codec: TicketCodec
    ids: list[int]
    tickets: list[int]
    lengths: list[int]

    @property
    def written(self) -> list[int]:
        return self.codec.write(self.ids, self.tickets, self.lengths)

    def read(self, ids: list[int]) -> tuple[list[int], list[int]]:
        return self.codec.read(ids, dict(zip(self.tickets, self.lengths, strict=True)).__getitem__)


def run(length: int, every: int | None) -> list[int]:
    """An image's placeholders; with a break after `every` of them, as Pixtral has."""
    ids = []
    for count in range(1, length + 1):
        ids.append(PLACEHOLDER)
        if every and count % every == 0:
            ids.append(BREAK)
    return ids


@st.composite
def rows(draw, least_images: int = 0) -> Row:
    size = draw(st.sampled_from(SIZES))
    codec = codec_of(size)
    ordinary = st.integers(FIRST_ORDINARY, FIRST_ORDINARY + size - 1)
    text = st.lists(st.one_of(ordinary, st.sampled_from(SPECIAL)), max_size=12)
    tickets = draw(st.lists(SIGNED_64, unique=True, min_size=least_images, max_size=4))
    lengths = [codec.length + draw(st.integers(0, 9)) for _ in tickets]
    ids = draw(text)
    for length in lengths:
        ids += run(length, draw(st.sampled_from((None, 1, 3, 8))))
        # Often no text at all: LLaVA's images may follow each other directly.
        ids += draw(st.one_of(st.just([]), text))
    return Row(codec, ids, tickets, lengths)


@given(rows())
def test_reading_gives_back_the_clean_row_and_its_tickets(row):
    assert row.read(row.written) == (row.ids, row.tickets)


@given(rows(), st.integers(0, 20), st.integers(0, 20))
def test_padding_on_either_side_keeps_the_tickets(row, left, right):
    padded = [PAD] * left + row.written + [EOS] + [PAD] * right
    assert row.read(padded) == ([PAD] * left + row.ids + [EOS] + [PAD] * right, row.tickets)


@given(rows(least_images=1))
def test_only_placeholders_change_and_only_into_ordinary_ids(row):
    written = row.written
    assert len(written) == len(row.ids)
    changed = [(old, new) for old, new in zip(row.ids, written, strict=True) if old != new]
    assert len(changed) == len(row.tickets) * (row.codec.length - 1)
    for old, new in changed:
        assert old == PLACEHOLDER
        assert new >= FIRST_ORDINARY


@given(rows())
def test_erasing_shows_the_clean_row(row):
    assert row.codec.erase(row.written) == row.ids


@given(rows())
def test_writing_leaves_its_input_alone(row):
    before = list(row.ids)
    assert row.written is not row.ids
    assert row.ids == before


@given(st.sets(st.integers(0, 5000), min_size=2, max_size=70), SIGNED_64, st.integers(0, 5000))
def test_any_set_of_ordinary_ids_is_an_alphabet(ordinary, ticket, placeholder):
    ordinary |= {5001, 5002}  # two remain if one of the others is the placeholder
    codec = TicketCodec(placeholder, ordinary)
    digits = codec.encode(ticket)
    assert len(digits) == codec.length - 1
    assert set(digits) <= ordinary - {placeholder}
    assert codec.decode(digits) == ticket


def test_the_length_follows_from_the_alphabet():
    # Anchor, checksum, and 64 bits at k bits a digit.
    assert [codec_of(size).length for size in (2, 3, 4, 256, 400, 151_643)] == [66, 66, 34, 10, 10, 6]


@pytest.mark.parametrize("ticket", [0, 1, -1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("size", SIZES)
def test_the_extreme_tickets_survive_every_alphabet(size, ticket):
    codec = codec_of(size)
    assert codec.decode(codec.encode(ticket)) == ticket


def test_the_order_and_repetition_of_ordinary_ids_do_not_matter():
    shuffled = TicketCodec(PLACEHOLDER, [13, 12, 11, 10, 12, PLACEHOLDER])
    assert shuffled.encode(12345) == codec_of(4).encode(12345)


@pytest.mark.parametrize("ordinary", [[], [5], [PLACEHOLDER, 5]])
def test_fewer_than_two_ordinary_ids_are_refused(ordinary):
    with pytest.raises(ValueError, match=r"Got \d ordinary ids; a ticket needs at least 2"):
        TicketCodec(PLACEHOLDER, ordinary)


def test_every_single_flipped_digit_of_a_large_alphabet_is_detected():
    codec, draw = codec_of(65_536), random.Random(0)
    for _ in range(100):
        digits = codec.encode(draw.getrandbits(64) - 2**63)
        for place in range(len(digits)):
            other = digits[place]
            while other == digits[place]:
                other = draw.randrange(FIRST_ORDINARY, FIRST_ORDINARY + 65_536)
            assert codec.decode([*digits[:place], other, *digits[place + 1 :]]) is None


def test_the_checksum_of_k_bits_misses_about_one_flip_in_two_to_the_k():
    codec, draw, missed = codec_of(256), random.Random(0), 0
    for _ in range(20_000):
        digits = codec.encode(draw.getrandbits(64) - 2**63)
        place = draw.randrange(len(digits) - 1)
        value = (digits[place] - FIRST_ORDINARY + draw.randrange(1, 256)) % 256
        digits[place] = FIRST_ORDINARY + value
        missed += codec.decode(digits) is not None
    assert missed < 20_000 * 2 / 256


@given(rows(least_images=1), st.data())
def test_a_digit_overwritten_by_a_special_id_is_refused(row, data):
    # One placeholder more than needed, so that the text behind cannot pass for the lost digit.
    codec = row.codec
    row = Row(codec, run(codec.length + 1, None), row.tickets[:1], [codec.length + 1])
    damaged = row.written
    damaged[data.draw(st.integers(1, codec.length - 1))] = data.draw(st.sampled_from(SPECIAL))
    with pytest.raises(TicketError, match="position 0"):
        row.read(damaged)
    assert codec.erase(damaged) == damaged


@given(rows(least_images=1), st.data())
def test_a_row_cut_on_the_right_inside_an_image_is_refused(row, data):
    last = len(row.ids) - row.ids[::-1].index(PLACEHOLDER) - 1
    image = [index for index, token in enumerate(row.ids) if token == PLACEHOLDER][-row.lengths[-1]]
    kept = data.draw(st.integers(image + 1, last))
    with pytest.raises(TicketError):
        row.read(row.written[:kept])


@given(rows(least_images=1), st.data())
def test_a_row_cut_on_the_left_inside_an_image_is_refused(row, data):
    # At least two placeholders are left: a single one takes the text behind it for its digits.
    length = row.codec.length + 2
    row = Row(row.codec, [*run(length, None), EOS], row.tickets[:1], [length])
    with pytest.raises(TicketError, match="no image came with them"):
        row.read(row.written[data.draw(st.integers(1, row.codec.length)) :])


def test_a_truncated_image_says_how_many_tokens_are_left():
    codec = codec_of(400)
    row = Row(codec, [11, 12, *run(20, None), 13], [99], [20])
    with pytest.raises(TicketError, match=r"position 2 has 15 of its 20 tokens left.*truncated"):
        row.read(row.written[:17])


def test_a_ticket_cut_in_its_digits_is_called_damaged():
    row = Row(codec_of(400), run(20, None), [99], [20])
    with pytest.raises(TicketError, match="position 0 is damaged: its checksum does not fit"):
        row.read(row.written[:6])


def test_a_clean_placeholder_without_a_ticket_is_refused():
    with pytest.raises(TicketError, match="image placeholders from position 3 on, but no image came"):
        codec_of(400).read([11, 12, 13, *run(20, None)], lambda ticket: 20)


def test_a_row_without_placeholders_has_no_tickets():
    assert codec_of(400).read([11, PAD, 12], lambda ticket: 20) == ([11, PAD, 12], [])


@pytest.mark.parametrize(
    "theirs",
    [
        TicketCodec(5000, range(FIRST_ORDINARY, FIRST_ORDINARY + 65_536 + 1)),
        TicketCodec(PLACEHOLDER, range(FIRST_ORDINARY + 1, FIRST_ORDINARY + 1 + 65_536)),
        TicketCodec(PLACEHOLDER, range(FIRST_ORDINARY, FIRST_ORDINARY + 32_000)),
    ],
    ids=["another placeholder", "other words", "fewer words"],
)
def test_another_tokenizers_codec_refuses_the_ticket(theirs):
    draw = random.Random(0)
    for _ in range(100):
        digits = codec_of(65_536).encode(draw.getrandbits(64) - 2**63)
        assert theirs.decode(digits) is None


@pytest.mark.parametrize("length", range(1, 10))
def test_a_run_too_short_for_a_ticket_names_the_needed_length(length):
    codec = codec_of(400)
    with pytest.raises(TicketError, match=rf"Image 0 begins with {length} placeholder.* needs 10"):
        codec.write([11, *run(length, None), 12], [5], [length])


def test_ordinary_text_inside_an_image_shortens_its_run():
    # A tile's text label would be read as a digit.
    ids = [*run(4, None), 15, *run(16, None)]
    with pytest.raises(TicketError, match="Image 0 begins with 4 placeholder"):
        codec_of(400).write(ids, [5], [20])


def test_the_second_image_is_named_when_it_is_the_short_one():
    with pytest.raises(TicketError, match="Image 1 begins with 3"):
        codec_of(400).write([*run(12, None), *run(3, None)], [5, 6], [12, 3])


def test_tickets_and_lengths_must_pair_up():
    with pytest.raises(ValueError, match="argument"):
        codec_of(400).write(run(24, None), [5], [12, 12])
