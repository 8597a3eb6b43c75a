"""The task of charts: rows are as the page says, and the whole path runs. No claim of accuracy."""

from collections import Counter

import pytest
from PIL import Image


@pytest.mark.slow
@pytest.mark.usefixtures("needs_extra")
def test_each_kind_is_drawn_as_often_as_the_others_and_never_twice_alike():
    from examples.demo_brands.charts import ANSWERS, RIGHT, chart_rows
    from examples.demo_brands.pictures import IMAGE_SIZE
    from examples.demo_brands.splits import with_completions

    rows = chart_rows(3 * len(ANSWERS), "labelled", 0)
    assert Counter(rows["answer"]) == dict.fromkeys(ANSWERS, 3)
    assert {image.size for image in rows["image"]} == {(IMAGE_SIZE, IMAGE_SIZE)}
    streams = [rows, chart_rows(60, "graded", 0), chart_rows(60, "held_out", 0), chart_rows(60, "graded", 1)]
    drawn = Counter(image.tobytes() for stream in streams for image in stream["image"])
    assert set(drawn.values()) == {1}
    assert chart_rows(3 * len(ANSWERS), "labelled", 0)[7]["image"].tobytes() == rows[7]["image"].tobytes()
    told = with_completions(rows)["completion"]
    assert RIGHT(told, answer=rows["answer"]) == [1.0] * len(rows)
    assert sum(RIGHT(told, answer=[*rows["answer"][1:], rows["answer"][0]])) < len(rows) / 3


@pytest.mark.usefixtures("needs_extra")
def test_an_alignment_without_a_batch_says_what_it_needs():
    from examples.demo_brands.align import align

    with pytest.raises(ValueError, match=r"Got 16 labelled pictures\. Expected 32 or more"):
        align(None, [None] * 16, ["pie chart"] * 16, epochs=1, seed=0)


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_it_runs_from_the_alignment_to_the_controls(cache, tmp_path):
    from examples.demo_brands.charts import run

    figures = run(tmp_path, cache, seed=0, labelled=32, steps=1, held_out=4, controls=["sft"])
    assert len(figures["curves"]["reward"]) == 1
    assert set(figures["held_out"]) == {"grpo", "sft"}
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    assert Image.open(tmp_path / "answers.png").size > (400, 200)
    for changed in figures["held_out"].values():
        gain = changed["after"]["value"] - changed["before"]["value"]
        assert changed["gain"]["value"] == pytest.approx(gain, abs=1e-9)
