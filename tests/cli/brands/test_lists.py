"""The first task with a list of names in the prompt. No claim of accuracy."""

import pytest

from hf_vlm_rl.rewards import ChoiceReward


def test_a_list_has_every_brand_once_and_the_same_others_each_time(logos):
    from examples.demo_brands.lists import names
    from examples.demo_brands.logos import BRANDS

    for number in (16, 100, 1000):
        listed = names(logos, number)
        assert len({name.casefold() for name in listed}) == number
        assert set(BRANDS) <= set(listed)
        assert listed == names(logos, number)
        # Each is a choice of its own, whatever the others are.
        said = [[{"role": "assistant", "content": name}] for name in listed]
        assert ChoiceReward(listed)(said, answer=listed) == [1.0] * number


def test_the_list_comes_before_the_picture_and_is_the_same_in_every_row(logos):
    from examples.demo_brands.lists import names, with_list
    from examples.demo_brands.splits import QUESTION, brand_rows

    rows = brand_rows(logos, 4, "graded", 0)
    asked = with_list(rows, names(logos, 20))
    for prompt in asked["prompt"]:
        assert [message["role"] for message in prompt] == ["system", "user"]
        assert prompt[1]["content"] == QUESTION
    assert len({prompt[0]["content"] for prompt in asked["prompt"]}) == 1
    assert asked["answer"] == rows["answer"]
    assert all(name in asked["prompt"][0][0]["content"] for name in asked["answer"])


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_it_runs_from_sft_to_the_measurement_and_computes_the_list_once(cache, joined, tmp_path):
    from examples.demo_brands.lists import run

    sizes = {"labelled": 16, "steps": 1, "held_out": 4, "listed": 20, "asked": (16, 30)}
    figures = run(joined, tmp_path, cache, seed=0, **sizes)
    assert len(figures["curves"]["reward"]) == 1
    assert set(figures["asked"]) == {"16", "30"}
    for changed in figures["asked"].values():
        gain = changed["after"]["value"] - changed["before"]["value"]
        assert changed["gain"]["value"] == pytest.approx(gain, abs=1e-9)
    report = figures["report"]
    assert report["levels"] == 2  # the list, then each picture
    assert report["tokens"] > 8 * report["tokens_computed"]  # the 8 answers of a picture alone give less
