"""The tables of docs/recipes.md are what the planner gives; all cells take minutes, so one is made anew."""

import re

import pytest

from tests.documents.pages import PAGES, script

TEXT = PAGES["docs/recipes.md"].read_text()


def cells():
    lines = [
        line.strip("| ").split(" | ") for line in TEXT.splitlines() if " x " in line and " GB" not in line
    ]
    return {tuple(line[:2]): line[2:] for line in lines if len(line) == 8 and " x " in line[2]}


def test_every_model_and_task_has_a_line():
    made = script("make_recipes")
    titles = {title for title, _ in made.MODELS.values()}
    assert set(cells()) == {(title, task) for title in titles for task in made.TASKS}
    for (_, task), line in cells().items():
        image, completion = made.TASKS[task]
        assert line[:2] == [f"{image[0]} x {image[1]}", str(completion)]
        needed = [float(cell.rpartition(": ")[2]) for cell in line[2:] if cell != "nothing fits"]
        assert all(size <= gpu for size, gpu in zip(needed, made.GPUS[-len(needed) :], strict=True))


@pytest.mark.slow
def test_a_cell_is_what_the_planner_gives():
    made = script("make_recipes")
    image, completion = made.TASKS["a name from a list"]
    found = made.cell("qwen2_5_vl-3b", 16, image, completion, made.GPUS[-1])
    assert re.fullmatch(r"bf16: \d+", found)
    assert cells()["Qwen2.5-VL-3B", "a name from a list"][-1] == found
