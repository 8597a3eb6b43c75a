"""Several rewards as one: sums, products, gates, and rows from which parts abstain."""

import pickle

import pytest

from hf_vlm_rl.rewards import compose, exact_match_reward, format_reward, iou_reward


def first(completions, first, **columns):
    return first


def second(completions, second, **columns):
    return second


NUMBERS = {"first": [1.0, 0.5, None, None], "second": [2.0, None, 3.0, None]}


def test_sums_and_products_leave_out_what_abstains():
    assert compose(first, second)([""] * 4, **NUMBERS) == [3.0, 0.5, 3.0, None]
    assert compose(first, second, weights=[2, -1])([""] * 4, **NUMBERS) == [0.0, 1.0, -3.0, None]
    assert compose(first, second, how="product")([""] * 4, **NUMBERS) == [2.0, 0.5, 3.0, None]


def test_a_gate_closes_rows_and_one_that_abstains_does_not():
    gated = compose(first, gate=second, closed=-1.0)
    columns = {"first": [1.0, 1.0, 1.0, None, 0.5], "second": [1.0, 0.99, None, 0.0, 0.0]}
    assert gated([""] * 5, **columns) == [1.0, -1.0, 1.0, None, -1.0]


def test_composed_rewards_compose_and_have_names():
    inner = compose(exact_match_reward, iou_reward)
    assert inner.__name__ == "exact_match_reward_plus_iou_reward"
    outer = pickle.loads(pickle.dumps(compose(inner, how="product", gate=format_reward, name="task")))
    assert outer.__name__ == "task"
    text = "<think>a</think><answer>[0, 0, 1, 1]</answer>"
    columns = {"answer": ["[0, 0, 1, 1]"] * 2, "box": [[0, 0, 1, 1]] * 2}
    assert outer([text, text + "."], **columns) == [2.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "told"),
    [
        ([], {}, ValueError, "0 rewards"),
        ([[first, second]], {}, TypeError, "one by one"),
        ([first], {"gate": "format"}, TypeError, "'format'"),
        ([first], {"weights": [1, 2]}, ValueError, "2 weights for 1 rewards"),
        ([first], {"weights": [1], "how": "product"}, ValueError, "none for a product"),
        ([first], {"how": "mean"}, ValueError, "'mean'"),
    ],
)
def test_what_cannot_be_composed_is_refused(arguments, options, error, told):
    with pytest.raises(error, match=told):
        compose(*arguments, **options)
