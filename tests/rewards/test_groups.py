"""Groups of completions."""

import numpy as np
import pytest

from hf_vlm_rl.rewards.groups import groups_of
from tests.images import photo


def sizes(*args, **kwargs):
    return [len(group) for group in groups_of(*args, **kwargs)]


def asked(text, image):
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]}]


def test_groups_are_runs_of_equal_prompts():
    assert sizes(["a", "a", "b", "b", "b", "a"]) == [2, 3, 1]
    assert sizes([]) == []


def test_two_images_with_one_question_are_two_groups():
    cat, cup = photo("cat", (32, 32)), photo("coffee", (32, 32))
    # Trainers decode each row's image anew: equal, not identical.
    assert sizes([asked("?", image) for image in (cat, cat.copy(), cup, cup.copy())]) == [2, 2]
    assert sizes(["?"] * 4, {"image": [cat, cat.copy(), cup, cup.copy()]}) == [2, 2]
    assert sizes(["?"] * 4, {"answer": ["a", "a", "b", "b"], "completion_ids": [[1], [2], [3], [4]]}) == [
        2,
        2,
    ]
    assert sizes(["?"] * 2, {"box": [np.zeros(4), np.zeros(4)], "x": [float("nan")] * 2}) == [2]


def test_rows_that_are_equal_in_everything_need_the_number_of_generations():
    assert sizes(["a"] * 4) == [4]
    assert sizes(["a"] * 4, num_generations=2) == [2, 2]
    with pytest.raises(ValueError, match=r"3 rows and num_generations=2.*multiple"):
        groups_of(["a"] * 3, num_generations=2)
