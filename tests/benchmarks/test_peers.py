"""The comparison with other systems: its table, and that two systems compute the same."""

import sys

import pytest

from benchmarks.peers.__main__ import SIDES, lines, run
from benchmarks.peers.checkpoint import write
from benchmarks.peers.setting import Setting, asked


def test_a_setting_survives_the_command_line(monkeypatch):
    setting = Setting("somewhere", completion=128, micro=1, checkpointing=False, steps=4)
    monkeypatch.setattr(
        sys, "argv", ["run", "--side", "ours", "--setting", setting.told(), "--out", "figures.json"]
    )
    assert asked() == ("ours", setting, "figures.json")


def test_the_first_side_is_told_in_seconds_and_others_as_ratios_of_medians():
    def taken(*steps: float):
        same = {"rollout": 1.0, "update": 1.0, "above": 100.0, "peak": 200.0, "norm": 3.0}
        return [{**same, "step": step, "trl": "1.12.0"} for step in steps]

    ours, theirs = lines("defaults", {"policy": taken(2.0, 1.0, 9.0), "stock": taken(8.0, 6.0, 7.0)})
    assert "| policy | " in ours
    assert "| 2.00 s | 1.00 s |" in ours
    assert "| 3.50 | 1.00 |" in theirs


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_stock_and_policy_train_on_the_same_gradients(tmp_path):
    write(tmp_path, 1000, "tiny-qwen2_5_vl")
    setting = Setting(str(tmp_path), completion=4, steps=2)
    policy, stock = (run(side, setting) for side in SIDES if side in ("policy", "stock"))
    assert policy["norm"] == pytest.approx(stock["norm"], rel=1e-4)


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_a_run_that_fails_is_told_with_what_it_said(tmp_path):
    with pytest.raises(RuntimeError, match=r"policy ended with status 1:[\s\S]*is not there"):
        run("policy", Setting(str(tmp_path / "nothing")))
