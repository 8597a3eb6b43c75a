"""What `python -m benchmarks.trainers` measures: its study, and a step in several forwards."""

import pytest

from benchmarks.study import DEFAULTS, STUDY, USUAL, cells
from benchmarks.trainers import Shape, line, measure


def test_the_study_begins_with_what_people_run():
    asked = list(cells(dict.fromkeys(USUAL), {}))
    assert len(asked) == len(STUDY)
    first = Shape(**{name: value for name, value in asked[0].items() if name != "model"})
    assert first.settings == "checkpointing, 32,768 words"
    assert {each.get("micro") for each in asked} == {None, 1}
    assert {each.get("vocabulary") for each in asked} == {None, 32768, 151936}


def test_a_grid_keeps_its_settings():
    asked = list(cells(dict.fromkeys(USUAL) | {"group": [4, 8]}, DEFAULTS))
    assert [each["group"] for each in asked] == [4, 8]
    assert all(each["checkpointing"] and each["vocabulary"] == 32768 for each in asked)


def test_settings_alone_are_no_study():
    assert len(list(cells(dict.fromkeys(USUAL), {"micro": 1}))) == 1


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize(
    ("micro", "shared"), [(None, True), (1, False)], ids=["one_forward", "micro_batches_of_1"]
)
def test_a_step_with_the_defaults_is_stocks(micro, shared):
    shape = Shape("grpo", 4, 3, 6, micro=micro, **DEFAULTS | {"vocabulary": 1000})
    measured = measure("scale", shape, 1, "cpu")
    log_probs, loss, gradients = measured.differences
    assert log_probs < 1e-4
    assert loss < 1e-5
    assert gradients < 1e-4  # relative to the largest
    assert (measured.token_ratio > 1) == shared
    assert shape.settings in line(measured)
