"""The whole path on few pictures, two steps: it runs, and leaves what it says. No claim of accuracy."""

import json

import pytest

pytestmark = pytest.mark.trl


def test_the_demo_runs(cache, tmp_path, capsys):
    from examples.demo_brands.run import Sizes, run_seeds

    sizes = Sizes(labelled=32, alignment_epochs=1, warm_up_epochs=1, selection=2, prompts=2, held_out=32)
    run_seeds([3], steps=2, out=tmp_path, threads=1, cache=cache, sizes=sizes)
    printed = capsys.readouterr().out
    assert "Apache-2.0" in printed
    assert "seed 3: accuracy on 32 held-out pictures" in printed
    (run,) = json.loads((tmp_path / "figures.json").read_text())["runs"]
    assert {name: len(values) for name, values in run["curves"].items()} == {
        "reward": 2,
        "silent": 2,
        "entropy": 2,
    }
    assert run["pictures"] == {"labelled": 32, "graded": 4, "selection": 2, "held_out": 32}
    before = run["before_grpo"]
    assert list(before["pass_at"]) == ["1", "2", "4", "8"]
    assert 0 <= before["silent"] <= 1
    assert f"{before['silent']:.0%} of the pictures are silent" in printed
    stages = ["data", "checkpoint", "alignment", "warm start", "headroom", "grpo", "held out"]
    assert list(run["seconds"]) == stages
    made = {path.name for path in tmp_path.iterdir()}
    assert {"answers.png", "confusion.png", "learning_curve.png", "held_out.html", "adapter"} <= made
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert "saw 32 labelled pictures" in card
