"""Means with confidence intervals, over prompts; the unbiased estimate of pass@k."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

RESAMPLES = 2000
# With fewer values, a bootstrap interval at 95 % holds the mean in 82 to 95 % of cases (docs/evaluation.md).
LEAST = 20


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts.

    Attributes:
        value: The mean; nan where `n` is 0.
        interval: Confidence interval (low, high); None where there are too few prompts for one: fewer than
            2, and fewer than 20 where it would be a bootstrap.
        n: Prompts with a value.
        method: How the interval was made: "wilson", "bootstrap", "bonett-price" or "none".
    """

    value: float
    interval: tuple[float, float] | None
    n: int
    method: str

    def __str__(self) -> str:
        if not self.n:
            return "-"
        return f"{self.value:.3f}" + (
            f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]" if self.interval else ""
        )


def mean_over_prompts(values: Sequence[Sequence[float]], confidence: float = 0.95) -> Estimate:
    """The mean of the prompts' means.

    If all values are 0 or 1 the interval is Wilson's, else a BCa bootstrap over prompts. Completions
    of one prompt are alike, so Wilson's takes the number of independent completions that would vary as
    much; where all are 0 or all are 1, the number of prompts.

    Args:
        values: Per prompt, its values; prompts without any are left out.
        confidence: Level of the interval, in (0, 1).
    """
    prompts = [np.asarray(group, dtype=float) for group in values if len(group)]
    n = len(prompts)
    if not n:
        return Estimate(math.nan, None, 0, "none")
    means = np.array([group.mean() for group in prompts])
    mean = float(means.mean())
    if not all(np.isin(group, (0, 1)).all() for group in prompts):
        return bootstrap(means, confidence)
    completions, effective = sum(map(len, prompts)), float(n)
    if completions > n > 1 and means.var() > 0:
        effective = mean * (1 - mean) / (float(means.var(ddof=1)) / n)
    elif completions > n > 1 and 0 < mean < 1:
        effective = completions
    interval = wilson(mean, min(max(effective, n), completions), confidence)
    return Estimate(mean, _around(mean, interval), n, "wilson")


def wilson(share: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share, without continuity correction.

    Args:
        share: In [0, 1].
        n: Independent trials, > 0.
        confidence: Level, in (0, 1).
    """
    z = quantile(confidence)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)  # rounding


def bootstrap(values: np.ndarray, confidence: float = 0.95) -> Estimate:
    """The mean of `values` (n,) with a BCa bootstrap interval; the same at every call.

    Values that are all equal, up to rounding, have an interval without width. Fewer than 20 have none.
    """
    from scipy import stats  # half a second, which only this needs

    mean, n = float(np.mean(values)), len(values)
    if n < LEAST:
        return Estimate(mean, None, n, "none")
    spread = float(np.ptp(values))
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return Estimate(mean, (mean, mean), n, "bootstrap")
    interval = stats.bootstrap(
        ((np.asarray(values, dtype=float) - mean) / spread,),  # SciPy takes cubes, which may overflow
        np.mean,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    # No mean leaves the range of its values, but by rounding.
    low, high = np.clip([mean + spread * end for end in interval], np.min(values), np.max(values)).tolist()
    return Estimate(mean, _around(mean, (low, high)), n, "bootstrap")


def pass_at(k: int, n: int, right: int) -> float:
    """Chance that at least one of k <= n completions is right, by `right` of n sampled ones; unbiased."""
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def paired_shares(before: np.ndarray, after: np.ndarray, confidence: float = 0.95) -> Estimate:
    """The change of a share between paired values (n,) of 0 and 1, with Bonett and Price's interval."""
    n = len(before)
    won, lost = int(((after == 1) & (before == 0)).sum()), int(((after == 0) & (before == 1)).sum())
    up, down = (won + 1) / (n + 2), (lost + 1) / (n + 2)
    half = quantile(confidence) * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    interval = (max(-1.0, up - down - half), min(1.0, up - down + half))
    change = (won - lost) / n
    return Estimate(change, _around(change, interval), n, "bonett-price")


def mcnemar(won: int, lost: int) -> float:
    """Exact two-sided p-value of McNemar's test for `won` and `lost` discordant pairs; 1 without any."""
    from scipy import stats

    return float(stats.binomtest(won, won + lost).pvalue) if won + lost else 1.0


def quantile(confidence: float) -> float:
    """The two-sided quantile of the normal distribution: 1.96 for 0.95."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _around(value: float, interval: tuple[float, float]) -> tuple[float, float]:
    # Rounding may put the end of an interval on the wrong side of a value of 0 or 1.
    return min(interval[0], value), max(interval[1], value)
