"""The zoom example runs: both arms, from sheets to figures. What it gains is measured, not asserted here."""

import json
import runpy
import sys
from importlib.metadata import version

import pytest
from packaging.version import Version

from examples.zoom_sheets.data import HELD_OUT, WARM_UP, Sheet, load_splits


def test_no_scan_is_in_two_splits_and_the_tool_shows_the_cell_that_was_asked_for():
    splits = load_splits({"warm_up": 8, "graded": 8, "held_out": 8}, seed=0)
    seen = {name: set() for name in splits}
    for name, split in splits.items():
        for row in split:
            sheet = Sheet()
            sheet.reset(**row)
            for cell in ("a1", "h8", "c5"):
                ((block,),) = (sheet.zoom(cell),)
                seen[name].add(block["image"].tobytes())
            left, top = "12345678".index(row["cell"][1]) * 32, "abcdefgh".index(row["cell"][0]) * 32
            (block,) = sheet.zoom(row["cell"])
            assert block["image"].tobytes() == row["image"].crop((left, top, left + 32, top + 32)).tobytes()
    assert not seen["held_out"] & (seen["warm_up"] | seen["graded"])
    assert not seen["graded"] & seen["warm_up"]
    assert (WARM_UP, HELD_OUT) == (300, 450)


@pytest.mark.parametrize("cell", ["z1", "a9", "a", "", "a12"])
def test_a_cell_that_is_not_there_is_an_error_that_the_model_reads(cell):
    sheet = Sheet()
    sheet.reset(**load_splits({"graded": 1}, seed=0)["graded"][0])
    with pytest.raises(ValueError, match="no cell"):
        sheet.zoom(cell)


@pytest.mark.trl
@pytest.mark.skipif(
    Version(version("trl")) < Version("1.16"), reason="TRL < 1.16 gives models no images of tools"
)
def test_it_runs(tmp_path, monkeypatch):
    short = {"warm_up_steps": 1, "steps": 2, "held_out": 4, "out": tmp_path}
    given = [text for name, value in short.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["grpo_zoom", *given])
    runpy.run_module("examples.grpo_zoom", run_name="__main__")
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == {"with the tool", "without"}
    assert all(0 <= share <= 1 for arm in results.values() for share in arm.values())
