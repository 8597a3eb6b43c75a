"""Completions of a prompt against each other, either one first."""

import pytest

from hf_vlm_rl import RewardError


def longer(document, images):
    """The longer answer is better."""
    a, b = len(document["answer_A"]), len(document["answer_B"])
    return {"reason": "", "better": "tie" if a == b else "A" if a > b else "B"}


def test_a_win_counts_one_and_a_tie_half(judging):
    judging.server.verdict = longer
    judge = judging.pair()
    said = ["a", "bb", "dd", "ccc", "x", "x", "yy"]
    rows = judging.rows(*["cat"] * 4, *["coffee"] * 3)
    assert judge(said, **rows) == pytest.approx([0, 0.5, 0.5, 1, 0.25, 0.25, 1])
    # Six pairs of four, either way. Of three, two are equal, and two questions are left that differ.
    assert len(judging.server.asked) == 12 + 2


def test_rows_of_a_prompt_need_not_be_neighbours(judging):
    judging.server.verdict = longer
    rows = judging.rows("cat", "coffee", "cat", "coffee")
    assert judging.pair()(["a", "bb", "aa", "b"], **rows) == [0, 1, 1, 0]


def test_a_judge_that_prefers_a_place_gives_nobody_anything(judging):
    judging.server.verdict = lambda document, images: {"reason": "", "better": "A"}
    assert judging.pair()(["a", "b", "c"], **judging.rows(*["cat"] * 3)) == [0.5] * 3


def test_opponents_bound_the_requests(judging):
    judging.server.verdict = longer
    said = ["a" * length for length in range(1, 7)]
    rewards = judging.pair(opponents=1)(said, **judging.rows(*["cat"] * 6))
    assert rewards == [0, 0.5, 0.5, 0.5, 0.5, 1]
    assert len(judging.server.asked) == 2 * 6
    judging.server.asked.clear()
    assert judging.pair(opponents=5)(said, **judging.rows(*["cat"] * 6)) == pytest.approx(
        [0, 0.2, 0.4, 0.6, 0.8, 1]
    )
    assert len(judging.server.asked) == 6 * 5


def test_a_pair_that_failed_does_not_count(judging):
    def verdict(document, images):
        bad = {document["answer_A"], document["answer_B"]} >= {"a", "bb"}
        return 400 if bad and document["answer_A"] == "a" else longer(document, images)

    judging.server.verdict = verdict
    assert judging.pair()(["a", "bb", "ccc"], **judging.rows(*["cat"] * 3)) == [0, 0, 1]


def test_a_completion_without_a_pair_that_counts_has_failed(judging):
    judging.server.verdict = lambda document, images: (
        400 if "bad" in document.values() else longer(document, images)
    )
    rows = judging.rows(*["cat"] * 3, "coffee", "coffee")
    said = ["bad", "a", "bb", "c", "dd"]
    assert judging.pair(failed="row")(said, **rows) == [None, 0, 1, 0, 1]
    assert judging.pair()(said, **rows) == [None, None, None, 0, 1]


def test_one_completion_has_nobody_to_be_compared_with(judging):
    with pytest.raises(RewardError, match="no pair: its group has one completion"):
        judging.pair()(["a"], **judging.rows("cat"))


@pytest.mark.parametrize("opponents", [0, -1, 1.0, True])
def test_opponents_are_a_number(opponents, judging):
    with pytest.raises(ValueError, match="opponents="):
        judging.pair(opponents=opponents)
