"""The second task: rows have the right boxes, and the whole path runs. No claim of accuracy."""

import pytest

from hf_vlm_rl.rewards import IoUReward


@pytest.mark.slow
def test_the_answer_that_a_row_is_told_is_its_box(logos):
    from examples.demo_brands.boxes import COORDINATES, box_rows

    rows = box_rows(logos, 32, "selection", 0)
    right = IoUReward(coordinates=COORDINATES, threshold=0.9)
    assert right(rows["completion"], box=rows["box"], image_size=rows["image_size"]) == [1.0] * 32
    assert len({tuple(box) for box in rows["box"]}) == 32
    first = rows[0]
    assert first["prompt"][0]["content"].startswith("Where is the ")
    again = box_rows(logos, 32, "selection", 0)[0]
    assert (again["box"], again["image"].tobytes()) == (first["box"], first["image"].tobytes())
    assert box_rows(logos, 32, "selection", 1)[0]["box"] != first["box"]


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_it_runs_from_sft_to_the_measurement(cache, joined, tmp_path):
    from examples.demo_brands.boxes import run

    figures = run(joined, tmp_path, cache, seed=0, labelled=16, steps=1, held_out=4)
    assert len(figures["curves"]["reward"]) == 1
    for name in ("found", "iou"):
        assert 0 <= figures[name]["before"]["value"] <= 1
        gain = figures[name]["after"]["value"] - figures[name]["before"]["value"]
        assert figures[name]["gain"]["value"] == pytest.approx(gain, abs=1e-9)
