"""What holds for every reward: ranges, kinds of completions, abstaining, pickling, bad columns, bad text."""

import copy
import pickle
from inspect import isabstract

import pytest
from datasets.fingerprint import Hasher
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_vlm_rl import ColumnError, rewards
from tests.rewards.cases import CASES

every_reward = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{CASES.index(case)}-{case.reward.__name__}"
)
WITH_COLUMNS = [case for case in CASES if case.columns]


def as_messages(text):
    return [{"role": "assistant", "content": text}]


def test_every_exported_reward_has_a_case():
    tested = {type(case.reward).__name__ for case in CASES}
    classes = {name for name in rewards.__all__ if name.endswith("Reward")}
    assert {name for name in classes if not isabstract(getattr(rewards, name))} == tested


@every_reward
def test_right_and_malformed_completions_get_what_the_docstring_says(case):
    (right,), (malformed,) = case([case.right]), case([case.malformed])
    assert right == pytest.approx(case.high, abs=1e-5)
    if case.reward.__name__ not in ("repetition_reward", "length_reward"):  # nothing is malformed there
        assert malformed == case.score


@every_reward
def test_strings_messages_and_blocks_are_the_same(case):
    blocks = [{"type": "text", "text": case.right[:3]}, {"type": "text", "text": case.right[3:]}]
    called = [
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "7"},
        *as_messages(case.right),
    ]
    for completion in (as_messages(case.right), as_messages(blocks), called):
        assert case([completion, completion]) == case([case.right, case.right])


@every_reward
def test_what_is_no_completion_is_malformed(case):
    odd = [
        None,
        7,
        [],
        [3],
        {},
        [{"role": "assistant"}],
        as_messages(None),
        as_messages([None, {"text": 3}, 5]),
    ]
    assert case(odd) == case([""] * len(odd))


@every_reward
def test_pickles_copies_and_hashes(case):
    twin = pickle.loads(pickle.dumps(case.reward))
    assert twin == case.reward == copy.deepcopy(case.reward)
    assert twin.__name__ == case.reward.__name__
    assert Hasher.hash(twin) == Hasher.hash(case.reward)
    rows = {name: [value] for name, value in case.columns.items()}
    assert twin([case.right], **rows) == case([case.right])


def test_names_are_those_of_the_classes_unless_given():
    named = {type(case.reward).__name__: case.reward.__name__ for case in CASES}
    assert named["IoUReward"] == "iou_reward"
    assert named["OCRReward"] == "ocr_reward"
    assert named["JSONSchemaReward"] == "json_schema_reward"
    assert named["ComposedReward"] == "exact_match_reward"
    assert rewards.IoUReward(name="box").__name__ == "box"


@pytest.mark.parametrize("case", WITH_COLUMNS, ids=lambda case: case.reward.__name__)
def test_a_missing_column_is_named(case):
    for name in set(case.columns) - {"image_size"}:
        rows = {other: [value] for other, value in case.columns.items() if other != name}
        with pytest.raises(ColumnError, match=f"{name}.*missing"):
            case.reward(completions=[case.right], **rows)


@pytest.mark.parametrize("case", WITH_COLUMNS, ids=lambda case: case.reward.__name__)
def test_a_value_of_a_wrong_type_is_refused_with_its_row(case):
    for name in set(case.columns) - {"prompts"}:
        values = [case.columns[name], object()]
        with pytest.raises(ColumnError, match=rf"row 1 of the column '{name}' is <object.*Expected"):
            case(["", ""], **{name: values})
        with pytest.raises(ColumnError, match=f"'{name}' came as"):
            case(["", ""], **{name: [case.columns[name]]})


@pytest.mark.parametrize("case", WITH_COLUMNS, ids=lambda case: case.reward.__name__)
def test_none_in_a_column_is_a_row_for_other_rewards(case):
    for name in set(case.columns) - {"prompts"}:
        given = case([case.right, case.right], **{name: [None, case.columns[name]]})
        composed = case.reward.__name__.startswith("exact_match_reward_plus")
        assert given[0] is None or composed
        assert given[1] == case([case.right, case.right])[1]


# What models write when they go wrong, and what breaks parsers.
WRONG = """<answer> </answer> <think> </think> <loc0001> <ref> <box> [ ] [[1,2,3,4]] ( ) { } {"bbox_2d":
"label": ' " , 1 - NaN Infinity 1e999 /0 % 9999999999999999999999999999 \\boxed{ \\frac{ ^ ** ! $ yes no A B.
İ ß ½ ٣ \u202e \ud800 \x00 ``` ```json e . Coca-Cola \U0001f600"""
PIECES = WRONG.split()
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from([*PIECES, " ", "\n"]), max_size=40).map("".join))


@every_reward
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_no_completion_raises_or_leaves_the_range(case, texts):
    for value in case(texts) + case([as_messages(text) for text in texts]):
        assert case.low - 1e-9 <= value <= case.high + 1e-9


def huge():
    many = 100_000
    for piece in [*PIECES, "\\", "a", "1,000", "1.", "1/", "[1,", '{"a":', "$1$", "a b ", "\n"]:
        yield piece * many
    yield "[" + " " * many + "1"
    yield ",".join(["[1,2,3,4]"] * many)
    yield '{"bbox_2d": [1,2,3,4], "label": "a"},' * 1_000
    yield "<answer>" * many + "</answer>" * many
    yield '{"n": ' + "9" * many + "}"
    yield "<answer>" + "a b " * many + "</answer>"


@pytest.mark.slow
@every_reward
def test_huge_completions_end_in_linear_time(case):
    # Nothing measures time here: what is quadratic would take hours.
    for value in case(list(huge())):
        assert case.low <= value <= case.high
