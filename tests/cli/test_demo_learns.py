"""The demo learns: stock GRPO lifts accuracy on images that no training has seen."""

import json

import pytest
from PIL import Image

from examples.demo_digits.data import load_splits
from examples.demo_digits.run import run

pytestmark = pytest.mark.slow


def test_grpo_gains_fifteen_points_on_held_out_images(pytestconfig, tmp_path):
    figures = run(pytestconfig.getoption("seed"), steps=280, directory=tmp_path)
    assert figures["images"]["held_out"] == 500
    # An honest warm start: it knows how to answer, and is wrong often.
    assert 0.3 < figures["before"]["value"] < 0.7
    assert figures["after"]["value"] - figures["before"]["value"] >= 0.15
    adapter = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert not any("vision" in target for target in adapter["target_modules"])
    assert Image.open(tmp_path / "answers.png").size > (400, 200)


@pytest.mark.parametrize("seed", [0, 1])
def test_held_out_images_are_in_no_other_split(seed):
    splits = load_splits(warm_up=20, held_out=500, seed=seed)
    scans = {name: {image.tobytes() for image in split["image"]} for name, split in splits.items()}
    assert not scans["held_out"] & (scans["warm_up"] | scans["graded"])
    assert {name: len(split) for name, split in splits.items()} == {
        "warm_up": 20,
        "graded": 1277,
        "held_out": 500,
    }
