"""Columns get the narrowest type that holds every value unchanged, or an error with both places."""

import pytest
from datasets import Features, List, Value

from hf_vlm_rl.data.passes.column_types import Columns
from hf_vlm_rl.errors import DataError


def typed(*values):
    columns = Columns()
    for line, value in enumerate(values, 1):
        columns.add({"x": value}, f"line {line}")
    return columns.features()


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        (["a", None], Value("string")),
        ([None, None], Value("null")),
        ([True, None], Value("bool")),
        ([1, 2**63 - 1, -(2**63)], Value("int64")),
        ([1, 2.5, None], Value("float64")),
        ([[], [1], [2.5]], List(Value("float64"))),
        ([[1, 2.5]], List(Value("float64"))),
        ([[[]], [[["a"]]]], List(List(List(Value("string"))))),
        ([[], None], List(Value("null"))),
        ([{"a": 1}, {"b": ["c"]}, {"a": 0.5}], {"a": Value("float64"), "b": List(Value("string"))}),
        ([[{"a": 1}, {"a": None}]], List({"a": Value("int64")})),
    ],
)
def test_types_are_widened_to_what_holds_all_values(values, feature):
    assert typed(*values) == Features({"x": feature})
    assert typed(*reversed(values)) == Features({"x": feature})


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", 1), (1, "a"), ([1], 1), ({"a": 1}, [1]), (True, 1), ([["a"]], [[1]]), (2**53 + 1, 0.5)],
)
def test_values_that_no_type_holds_name_both_places_and_change_nothing(one, other):
    columns = Columns()
    columns.add({"x": None}, "line 1")
    columns.add({"x": one}, "line 2")
    before = columns.features()
    with pytest.raises(DataError, match=r"column 'x' holds .* as in line 2; .*strings=\['x'\].*drop=\['x'\]"):
        columns.add({"y": 1, "x": other}, "line 3")
    assert columns.features() == before


def nested(depth):
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize("value", [nested(40), 2**63, -(2**70), [2**63], [1, "a"], {"a": [1, {"b": 2}]}])
def test_values_that_fit_no_type_by_themselves_are_refused(value):
    with pytest.raises(DataError, match="column 'x' holds"):
        typed(value)
