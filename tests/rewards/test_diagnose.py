"""Diagnosis of a batch, and of a part of a run's log."""

import math

import pytest

from hf_vlm_rl.rewards import (
    compose,
    diagnose,
    exact_match_reward,
    format_reward,
    numeric_reward,
)
from hf_vlm_rl.rewards.diagnosis.signs import signs_of

GOOD = "<think>so</think><answer>{}</answer>"


def test_statistics_of_a_batch():
    completions = ["7", "8", "seven", GOOD.format(7), "x", "y"]
    found = diagnose(
        [numeric_reward, format_reward],
        completions,
        prompts=list("aabbcc"),
        weights=[1.0, 0.5],
        answer=[7] * 6,
    )
    numeric, form, total = found.rewards.values()
    assert list(found.rewards) == ["numeric_reward", "format_reward", "total"]
    assert (found.rows, found.groups) == (6, 3)
    assert (numeric.mean, numeric.low, numeric.high) == pytest.approx((1 / 3, 0, 1))
    assert numeric.std == pytest.approx(math.sqrt(2) / 3)
    assert (numeric.parse_rate, form.parse_rate, total.parse_rate) == (0.5, 1 / 6, None)
    assert [of.flat_groups for of in (numeric, form, total)] == pytest.approx([1 / 3, 2 / 3, 1 / 3])
    assert total.high == 1.5
    assert any("format_reward can read 17%" in warning for warning in found.warnings)
    lines = str(found).splitlines()
    assert lines[0] == "6 completions, 3 groups"
    assert lines[2].split() == ["numeric_reward", "6", "0.333", "0.471", "0.000", "1.000", "50%", "33%"]
    assert lines[-1].startswith("! ")


def test_rows_from_which_a_reward_abstains_do_not_count():
    completions = ["a", "b", GOOD.format("a")]
    found = diagnose(
        [exact_match_reward, format_reward], completions, prompts=["p"] * 3, answer=["a", "a", None]
    )
    # `answer` differs, so the third row is a prompt of its own.
    assert found.groups == 1
    assert (found.rewards["exact_match_reward"].rows, found.rewards["exact_match_reward"].mean) == (2, 0.5)
    assert (found.rewards["total"].rows, found.rewards["total"].mean) == (3, pytest.approx(2 / 3))


@pytest.mark.parametrize(
    ("rewards", "completions", "prompts", "told"),
    [
        (exact_match_reward, ["b", "b"], "pp", "exact_match_reward is 0 everywhere"),
        (exact_match_reward, ["a", "b"], None, "pass prompts"),
        (exact_match_reward, ["a", "a", "b", "b"], "ppqq", "In 100% of the groups"),
        (numeric_reward, ["x", "y"], "pp", "can read 0%"),
    ],
)
def test_warnings_say_what_is_wrong(rewards, completions, prompts, told):
    answer = ["7"] * len(completions) if "7" in completions else ["a"] * len(completions)
    answer = [7] * len(completions) if rewards is numeric_reward else answer
    found = diagnose(rewards, completions, prompts and list(prompts), answer=answer)
    assert any(told in warning for warning in found.warnings), found.warnings


def test_a_composed_reward_is_taken_apart():
    gated = compose(exact_match_reward, gate=format_reward, name="task")
    found = diagnose([gated, format_reward], [GOOD.format("a"), "a"], ["p"] * 2, answer=["a"] * 2)
    means = {name: of.mean for name, of in found.rewards.items()}
    assert means == {"task": 0.5, "format_reward": 0.5, "exact_match_reward": 1.0, "total": 1.0}
    assert found.rewards["format_reward"].parse_rate == 0.5


def test_a_reward_that_returns_too_few_values_is_refused():
    with pytest.raises(ValueError, match="short returned 1 values for 2 completions"):
        diagnose(short, ["a", "b"])


def short(completions, **columns):
    return [1.0]


def test_a_reward_without_any_row_is_told():
    found = diagnose(exact_match_reward, ["a", "b"], prompts=["p"] * 2, answer=[None, None])
    assert "exact_match_reward abstained from every row." in found.warnings
    assert "nan" in str(found)


def test_nothing_to_diagnose_is_refused():
    for rewards, completions, options in [
        ([], ["a"], {}),
        (format_reward, [], {}),
        (format_reward, ["a"], {"weights": []}),
    ]:
        with pytest.raises(ValueError, match="Expected one or more of each"):
            diagnose(rewards, completions, **options)


def log(**entry):
    return [{"rewards/iou_reward/mean": 0.5} | entry] * 4


def test_a_log_in_which_nothing_is_wrong_has_no_signs():
    assert signs_of(log(frac_reward_zero_std=0.4, entropy=0.5)) == {}
    assert signs_of(log()) == {}
    # TRL logs None where every row of a step abstained.
    assert signs_of(log(frac_reward_zero_std=None, entropy=float("nan"))) == {}


def test_groups_without_spread_are_told():
    signs = signs_of(log(frac_reward_zero_std=0.75))
    assert "75% of the groups" in signs["frac_reward_zero_std"]


def test_completions_that_are_nearly_the_same_are_told():
    signs = signs_of(log(frac_reward_zero_std=0.4, entropy=0.04))
    assert list(signs) == ["entropy"]
    assert "the entropy was 0.04 nats a token" in signs["entropy"]


def test_answers_that_cannot_be_read_are_told():
    more = {"frac_reward_zero_std": 0.4, "iou_reward/parse_rate": 0.2, "eval_iou_reward/parse_rate": 0.1}
    signs = signs_of(log(**more))
    assert list(signs) == ["iou_reward/parse_rate"]
    assert "iou_reward could read 20% of the completions" in signs["iou_reward/parse_rate"]
