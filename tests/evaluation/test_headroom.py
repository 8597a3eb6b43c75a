"""Whether there is something to sharpen, said before a run and while it goes on."""

import logging

import pytest

from hf_vlm_rl.evaluation import DiagnosisCallback, EvaluationResult, RewardScores, headroom
from tests.trainers.runs import grpo, mixture

RIGHT, WRONG, BOTH = (1.0,) * 4, (0.0,) * 4, (1.0, 0.0, 0.0, 0.0)


def of(*groups, threshold=None):
    return EvaluationResult({"brand": RewardScores(groups, threshold)}, (), (), {}, 0.0, 1.0, {})


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([RIGHT, BOTH, BOTH, BOTH], []),
        ([RIGHT] * 3 + [BOTH], ["75% of the prompts give no gradient. Drop prompts that are always right"]),
        ([WRONG] * 3 + [(1.0, 1.0, 0.0, 0.0)] * 2, ["60% of the prompts give no gradient. Warm up with SFT"]),
        (
            [RIGHT] * 9 + [(1.0, 1.0, 0.0, 0.0)],
            ["5 points above pass@1: there is little to sharpen. Take harder", "90%"],
        ),
        ([WRONG] * 9 + [BOTH], ["8 points above pass@1: there is little to sharpen. Warm up", "90%"]),
    ],
)
def test_what_there_is_to_sharpen_is_told(groups, told):
    found = headroom(of(*groups))
    assert len(found.warnings) == len(told)
    for warning, text in zip(found.warnings, told, strict=True):
        assert text in warning
        assert f"! {warning}" in str(found)


def test_silent_prompts_are_right_or_wrong():
    found = headroom(of(RIGHT, WRONG, WRONG, BOTH))
    assert (found.first, found.best, found.k) == (pytest.approx(5 / 16), 0.5, 4)
    assert (found.solved, found.hopeless, found.silent) == (0.25, 0.5, 0.75)
    assert "pass@1 = 0.31, pass@4 = 0.50; 75% of the prompts are silent (25% always right" in str(found)
    # Values that differ give a gradient, also where all of them pass or none does.
    graded = headroom(of((0.6, 0.9), (0.1, 0.2), (0.7, 0.7), (0.3, 0.3), threshold=0.5))
    assert (graded.first, graded.solved, graded.hopeless) == (0.5, 0.25, 0.25)


def test_an_evaluation_says_what_grpo_starts_with(sampled, greedy):
    found = headroom(sampled, "short")
    assert found.first == pytest.approx(sampled.rewards["short"].mean.value)
    assert found.best == sampled.rewards["short"].pass_at[4].value
    with pytest.raises(ValueError, match=r"Got reward=None\. Expected one of short, starts"):
        headroom(sampled)
    with pytest.raises(ValueError, match=r"without pass@k of starts. .* or a threshold \(thresholds=\)"):
        headroom(sampled, "starts")
    with pytest.raises(ValueError, match="Expected several completions a prompt"):
        headroom(greedy, "short")


@pytest.mark.parametrize(
    ("groups", "k", "first", "best"),
    [
        ([(1.0, 0.0, None, 1.0)] * 3 + [(0.0, 0.0, None, 0.0)] * 3, 2, 1 / 3, 0.5),
        ([RIGHT] * 3 + [(0.0, 0.0, None, 0.0)] * 7, 4, 1.0, 1.0),
    ],
)
def test_both_shares_are_of_the_prompts_with_as_many_values(groups, k, first, best):
    found = headroom(of(*groups, threshold=0.5))
    assert (found.k, found.first, found.best) == (k, pytest.approx(first), pytest.approx(best))


def test_a_reward_that_gives_no_value_is_named():
    with pytest.raises(ValueError, match="brand gave no completion a value"):
        headroom(of((None,) * 4, (None,) * 4, threshold=0.5))


def same(completions, **_):
    """Teaches nothing."""
    return [1.0 for _ in completions]


@pytest.mark.trl
def test_a_run_that_teaches_nothing_is_told_while_it_goes_on(policy_for, tmp_path, caplog):
    diagnosis = DiagnosisCallback(window=2)
    policy = policy_for("internvl")
    options = {"reward": same, "peft": policy.lora_config(r=4), "max_steps": 4, "steps_per_generation": 1}
    trainer = grpo(policy, mixture("internvl"), tmp_path, **options)
    trainer.add_callback(diagnosis)
    with caplog.at_level(logging.WARNING, logger="hf_vlm_rl"):
        trainer.train()
    # Said when it was seen, and not again while it lasts.
    assert list(diagnosis.found) == [2]
    (sentence,) = diagnosis.found[2]
    assert "100% of the groups had one reward for all completions" in sentence
    assert sum(sentence in record.getMessage() for record in caplog.records) == 1


def test_what_comes_back_is_told_again():
    """On a log as GRPO writes it, with an evaluation's entry in between."""
    from transformers import TrainerState

    diagnosis, state = DiagnosisCallback(window=2), TrainerState()
    for step, silent in enumerate([0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9], start=1):
        state.global_step = step
        for entry in ({"frac_reward_zero_std": silent, "entropy": 1.0}, {"eval_entropy": 0.0}):
            state.log_history.append(entry)
            diagnosis.on_log(None, state, None)
    assert list(diagnosis.found) == [2, 6]
    with pytest.raises(ValueError, match=r"Got window=0\. Expected 1 or more"):
        DiagnosisCallback(window=0)
