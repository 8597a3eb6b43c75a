"""Scores become rewards between 0 and 1."""

import pytest


@pytest.mark.parametrize(("low", "high", "rewards"), [(0, 10, [0.0, 0.1, 1.0]), (-10, 10, [0.5, 0.55, 1.0])])
def test_scores_are_scaled(low, high, rewards, judging):
    judging.server.verdict = lambda document, images: {"reason": "", "score": int(document["answer"])}
    judge = judging.score(low=low, high=high)
    assert judge(["0", "1", "10"], **judging.rows(*["cat"] * 3)) == pytest.approx(rewards)
