"""Intervals: those of SciPy, and the coverage that they claim."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import bootstrap as scipy_bootstrap

from hf_vlm_rl.evaluation.estimates import (
    bootstrap,
    mcnemar,
    mean_over_prompts,
    paired_shares,
    pass_at,
    wilson,
)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 30), (7, 30), (30, 30), (812, 1000)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_wilson_is_scipys(right, n, level):
    expected = binomtest(right, n).proportion_ci(level, method="wilson")
    assert wilson(right / n, n, level) == pytest.approx((expected.low, expected.high), abs=1e-9)
    estimate = mean_over_prompts([[1.0]] * right + [[0.0]] * (n - right), level)
    assert estimate.interval == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert estimate.interval[0] <= estimate.value <= estimate.interval[1]
    assert (estimate.value, estimate.n, estimate.method) == (right / n, n, "wilson")


def test_wilson_covers_95_percent_of_what_it_should_exactly():
    for n, share in itertools.product((20, 50), (0.1, 0.3, 0.5, 0.8)):
        covered = 0.0
        for right in range(n + 1):
            low, high = wilson(right / n, n)
            chance = math.comb(n, right) * share**right * (1 - share) ** (n - right)
            covered += chance * (low <= share <= high)
        assert 0.93 < covered < 0.98, (n, share)


def test_the_bootstrap_is_about_scipys():
    values = np.random.default_rng(3).gamma(2.0, size=60)
    expected = scipy_bootstrap(
        (values,), np.mean, method="BCa", n_resamples=20000, rng=np.random.default_rng(4)
    ).confidence_interval
    estimate = bootstrap(values)
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.interval == pytest.approx((expected.low, expected.high), abs=0.03)
    assert bootstrap(values) == estimate


@pytest.mark.parametrize("n", [2, 5, 10, 19])
def test_fewer_than_twenty_values_have_no_bootstrap_interval(n):
    values = np.random.default_rng(0).random(n)
    assert (bootstrap(values).interval, bootstrap(values).method) == (None, "none")
    assert bootstrap(values).value == pytest.approx(values.mean())


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda random, n: random.random(n), 0.5),
        (lambda random, n: random.beta(0.5, 0.5, n), 0.5),
        # An IoU: a third of the boxes miss, the others are mostly good.
        (lambda random, n: np.where(random.random(n) < 0.3, 0.0, random.beta(5, 1, n)), 0.7 * 5 / 6),
    ],
)
def test_the_bootstrap_of_twenty_covers_about_95_percent(draw, mean):
    random, covered = np.random.default_rng(5), 0
    for _ in range(300):
        low, high = bootstrap(draw(random, 20)).interval
        covered += low <= mean <= high
    assert 0.91 < covered / 300 < 0.98


def test_one_value_that_differs_and_huge_values_have_finite_intervals():
    low, high = bootstrap(np.array([0.0] * 19 + [0.5])).interval
    assert 0 <= low < 0.025 < high < 0.3
    low, high = bootstrap(np.array([0.0] * 30 + [1e300])).interval
    assert 0 <= low < 1e300 / 31 < high < 1e300


def test_values_that_differ_by_rounding_have_an_interval_without_width():
    low, high = bootstrap(np.array([0.1 * row + 0.2 - 0.1 * row for row in range(25)])).interval
    assert (low, high) == pytest.approx((0.2, 0.2), abs=1e-12)


def test_completions_of_one_prompt_count_as_the_model_varies():
    agreeing = [[1.0] * 8] * 12 + [[0.0] * 8] * 18
    assert mean_over_prompts(agreeing).interval == pytest.approx(wilson(0.4, 30), abs=0.01)
    independent = [[1.0, 0.0] * 4] * 30
    assert mean_over_prompts(independent).interval == pytest.approx(wilson(0.5, 240))
    assert mean_over_prompts([[1.0] * 8] * 30).interval == pytest.approx(wilson(1.0, 30))


def test_clustered_wilson_covers_about_95_percent_of_simulated_means():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        shares = random.beta(1, 1, size=40)  # of each prompt; their mean is 0.5
        values = (random.random((40, 4)) < shares[:, None]).astype(float)
        low, high = mean_over_prompts(values.tolist()).interval
        covered += low <= 0.5 <= high
    assert 0.92 < covered / 400 < 0.98


@pytest.mark.parametrize(
    ("n", "right", "k"), [(5, 2, 1), (5, 2, 3), (6, 1, 4), (4, 0, 2), (4, 4, 2), (5, 4, 2)]
)
def test_pass_at_k_is_the_mean_over_all_choices_of_k(n, right, k):
    completions = [1] * right + [0] * (n - right)
    chosen = list(itertools.combinations(completions, k))
    assert pass_at(k, n, right) == pytest.approx(sum(map(max, chosen)) / len(chosen))


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (1, 0), (9, 2), (5, 5), (400, 330)])
def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs(won, lost):
    expected = binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert mcnemar(won, lost) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_takes_ten_thousand_pairs():
    assert mcnemar(5_000, 4_900) == pytest.approx(binomtest(5_000, 9_900).pvalue, rel=1e-9)


def test_the_paired_interval_covers_the_true_difference():
    random, covered = np.random.default_rng(1), 0
    for _ in range(400):
        before = (random.random(60) < 0.4).astype(float)
        after = np.where(before == 1, random.random(60) < 0.9, random.random(60) < 0.3).astype(float)
        low, high = paired_shares(before, after).interval
        covered += low <= 0.4 * 0.9 + 0.6 * 0.3 - 0.4 <= high
    assert 0.92 < covered / 400 < 0.985


def test_nothing_and_too_little_have_no_interval():
    assert math.isnan(mean_over_prompts([[], []]).value)
    assert mean_over_prompts([[], []]).n == 0
    assert mean_over_prompts([[0.3]]).interval is None
