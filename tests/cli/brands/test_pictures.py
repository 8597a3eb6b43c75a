"""Splits share no photograph and no picture, and a seed decides them."""

import itertools

import numpy as np
import pytest
from PIL import Image, ImageDraw

from examples.demo_brands.pictures import IMAGE_SIZE, boxed_picture, picture


@pytest.fixture
def mask():
    shape = Image.new("L", (192, 192))
    ImageDraw.Draw(shape).regular_polygon((96, 96, 90), 3, fill=255)
    return shape


def test_a_picture_is_decided_by_its_random_numbers(mask):
    drawn = [np.asarray(picture(mask, ("coffee.png",), np.random.default_rng(seed))) for seed in (1, 1, 2)]
    assert drawn[0].shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).mean() > 0.5


@pytest.mark.parametrize("seed", range(20))
def test_the_logo_is_on_the_picture(mask, seed):
    """Without it another picture results, in a part as large as a logo."""
    with_logo, without = (
        np.asarray(picture(drawn, ("coffee.png",), np.random.default_rng(seed)), dtype=float)
        for drawn in (mask, Image.new("L", mask.size))
    )
    changed = (np.abs(with_logo - without).max(-1) > 20).mean()
    assert 0.03 < changed < 0.7


@pytest.mark.parametrize("seed", range(20))
def test_the_box_is_that_of_the_plate(mask, seed):
    """What the logo changes lies inside, but for a pixel of blur, and the plate is as large as asked for."""
    (image, box), (without, _) = (
        boxed_picture(drawn, ("coffee.png",), np.random.default_rng(seed), (0.3, 0.6))
        for drawn in (mask, Image.new("L", mask.size))
    )
    changed = np.abs(np.asarray(image, dtype=float) - np.asarray(without, dtype=float)).max(-1) > 40
    rows, columns = changed.nonzero()
    left, top, right, bottom = box
    assert left - 1 <= columns.min() <= columns.max() + 1 <= right + 1
    assert top - 1 <= rows.min() <= rows.max() + 1 <= bottom + 1
    assert 0.2 * IMAGE_SIZE < max(right - left, bottom - top) <= 0.6 * IMAGE_SIZE + 2


def test_no_split_has_a_photograph_of_another(needs_extra):
    from examples.demo_brands.splits import PHOTOGRAPHS

    for one, other in itertools.combinations(PHOTOGRAPHS.values(), 2):
        assert not set(one) & set(other)


@pytest.mark.slow
def test_streams_differ_and_a_seed_repeats_them(logos):
    from examples.demo_brands.logos import BRANDS
    from examples.demo_brands.splits import STREAMS, brand_rows

    streams = [stream for stream in STREAMS if stream != "other"]
    rows = {(stream, seed): brand_rows(logos, 32, stream, seed) for stream in streams for seed in (0, 1)}
    drawn = {key: [image.tobytes() for image in split["image"]] for key, split in rows.items()}
    assert len(set(itertools.chain(*drawn.values()))) == 32 * len(drawn)
    again = brand_rows(logos, 32, "held_out", 1)
    assert [image.tobytes() for image in again["image"]] == drawn["held_out", 1]
    for split in rows.values():
        assert sorted(split["answer"]) == sorted(BRANDS * 2)
        assert split.column_names == ["prompt", "image", "answer"]


def test_other_logos_are_none_of_the_brands(logos):
    from examples.demo_brands.logos import BRANDS, other_titles

    titles = other_titles(logos, 500, seed=0)
    assert len(set(titles)) == 500
    assert not [title for title in titles for brand in BRANDS if brand.casefold() in title.casefold()]
