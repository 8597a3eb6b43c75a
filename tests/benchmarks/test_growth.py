"""How costs grow: what is named, and that the commands run."""

import csv
import os
import subprocess
import sys

import pytest

from benchmarks.image_store import in_memory, on_disk
from benchmarks.scale import AXES, grows_faster, growth
from tests.documents.pages import ROOT


def rows(
    stock: tuple[float, float], policy: tuple[float, float], ratios: tuple[float, float] = (4, 4)
) -> list:
    """Figures at sizes 10 and 100."""
    figures = []
    for size, *amounts, ratio in zip((10, 100), stock, policy, ratios, strict=True):
        for side, amount in zip(("stock", "policy"), amounts, strict=True):
            row = {"side": side, "size": size, "token ratio": ratio}
            figures.append({**row, "update": amount, "step": 2 * amount, "memory": amount})
    return figures


def run(*arguments: str) -> str:
    line = [sys.executable, "-W", "ignore", "-m", *arguments]
    return subprocess.run(line, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True).stdout


def test_growth_is_an_exponent():
    assert growth(rows((1, 10), (1, 100)), "update") == pytest.approx({"stock": 1, "policy": 2})


def test_what_grows_faster_than_stocks_is_named():
    assert grows_faster(rows((1, 10), (0.1, 10)), "update")
    assert grows_faster(rows((1, 10), (0.1, 10)), "memory")
    assert not grows_faster(rows((1, 10), (0.5, 5)), "update")


def test_to_approach_stock_as_less_is_shared_is_not_to_grow_faster():
    assert not grows_faster(rows((1, 10), (0.25, 10), ratios=(4, 1)), "update")
    assert grows_faster(rows((1, 10), (0.25, 10), ratios=(4, 3)), "update")


def test_the_axes_are_those_that_were_promised():
    sizes = {axis: [getattr(shape, axis) for shape in shapes] for axis, (_, shapes) in AXES.items()}
    assert {axis: (values[0], values[-1]) for axis, values in sizes.items()} == {
        "group": (2, 64),
        "tiles": (1, 40),
        "images": (1, 30),
        "words": (64, 4096),
        "completion": (8, 512),
    }
    assert all(values == sorted(values) for values in sizes.values())


@pytest.mark.slow
@pytest.mark.trl
@pytest.mark.once
def test_the_scale_command_writes_figures_and_plots_them_again(tmp_path):
    small = ("--model", "tiny-internvl", "--repeats", "1", "--axes", "images", "--sizes", "2")
    plot = tmp_path / "scale.png"
    said = run("benchmarks.scale", *small, "--out", str(tmp_path), "--plot", str(plot))
    assert "| *images* | *growth* |" in said
    assert "Grows faster than stock's: " in said
    with (tmp_path / "scale.csv").open() as file:
        figures = list(csv.DictReader(file))
    assert [(row["size"], row["side"]) for row in figures] == [
        ("1", "stock"), ("1", "policy"), ("3", "stock"), ("3", "policy"),
    ]  # fmt: skip
    assert all(float(row["step"]) > 0 and float(row["memory"]) > 0 for row in figures)
    drawn = plot.read_bytes()
    plot.unlink()
    run("benchmarks.scale", "--read", str(tmp_path / "scale.csv"), "--plot", str(plot))
    assert plot.read_bytes()[:4] == drawn[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.trl
@pytest.mark.once
def test_the_host_memory_command_compares_the_sides():
    small = ("--model", "tiny-internvl", "--images", "2", "--tiles", "3")
    said = run("benchmarks.host_memory", *small, "--rollouts", "32", "--stock-rollouts", "8", "16")
    lines = [line.split(" | ") for line in said.splitlines() if line.startswith(("| stock", "| policy"))]
    assert [(side, rollouts) for side, rollouts, *_ in lines] == [
        ("| stock", "8"),
        ("| stock", "16"),
        ("| policy", "32"),
        ("| stock, drawn on", "32"),
    ]
    assert "Stock / policy: held " in said


@pytest.mark.slow
def test_the_store_is_filled_to_the_sizes_asked_for(tmp_path):
    memory = list(in_memory([1000, 2000], str(tmp_path / "memory")))
    disk = list(on_disk([1000, 2000], str(tmp_path / "disk")))
    assert [line[0] for line in memory] == [line[0] for line in disk] == ["1,000", "2,000"]
    kept = list((tmp_path / "disk" / "kept").glob("*/*"))
    assert len(kept) == 2000 + 2 * 1000
    assert all(path.parent.name == path.name[:2] for path in kept)
