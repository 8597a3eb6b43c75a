"""The notebook's own cells train a tiny model, in their order, with other values of its parameters."""

import json
import os

import pytest
from PIL import Image

from tests.documents.examples.conftest import SCRIPTS

NOTEBOOK = json.loads((SCRIPTS / "grpo_free_gpu.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_it_is_a_notebook_without_outputs():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(names)) == len(names)
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in CODE)


def variety(completions, **_):
    """What random weights can learn at once; they never write a number in tags."""
    return [float(len(set(messages[0]["content"]))) for messages in completions]


@pytest.mark.trl
def test_its_cells_train_a_tiny_model_from_top_to_bottom(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"IMAGES": 8, "HELD_OUT": 2, "STEPS": 2, "LEARNING_RATE": 1e-2}
    small = {"MODEL": str(checkpoint("internvl")), "REWARD": variety, **sizes}
    names = {}
    for number, cell in enumerate(CODE):
        lines = [line for line in cell["source"] if not line.startswith("%")]
        exec(compile("".join(lines), f"cell {number}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", ()):  # as papermill does
            assert small.keys() < names.keys()
            names |= small
    assert [log["step"] for log in names["trainer"].state.log_history if "eval/variety/mean" in log]
    assert sorted(names["evaluation"].results) == [0, 2]
    assert isinstance(names["train"][0]["images"][0], Image.Image)
    assert names["again"].family.model_type == "internvl"
    assert {"card.json", "adapter_config.json"} <= set(os.listdir("adapter"))


def test_every_picture_shows_as_many_discs_as_the_answer_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (cell,) = ("".join(cell["source"]) for cell in CODE if "def drawn" in "".join(cell["source"]))
    names = {"IMAGES": 0, "HELD_OUT": 0}
    exec(cell.partition("\ntrain = ")[0], names)
    colours = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "orange": (255, 165, 0)}
    for row in map(names["drawn"], range(20)):
        (asked,) = (colour for colour in colours if colour in row["prompt"][0]["content"].split())
        (image,) = row["images"]
        centres = [image.getpixel((x * 112 + 56, y * 112 + 56)) for x in range(4) for y in range(4)]
        assert centres.count(colours[asked]) == int(row["answer"]) >= 1
