"""`EvaluationCallback` in stock trainers."""

import copy
import json
import logging

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import TrainerCallback

from hf_vlm_rl import Evaluation, save_adapter
from hf_vlm_rl.evaluation import EvaluationCallback, EvaluationResult, evaluate
from hf_vlm_rl.hub.cards.stored import stored
from tests.evaluation.rows import OPTIONS, mixture, short, starts
from tests.trainers.runs import flat, grpo, sft
from tests.trainers.runs import mixture as train_rows

pytestmark = pytest.mark.trl

STEPS = {"max_steps": 3}


class Recorder(TrainerCallback):
    """A reporter that keeps what it gets."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


def trainer_for(policy, out, **options):
    torch.manual_seed(0)  # of the adapter's first weights
    peft = policy.lora_config(r=4)
    return grpo(policy, train_rows("internvl"), out, peft=peft, **STEPS | {"logging_steps": 3} | options)


def entries(trainer):
    return {log["step"]: log for log in trainer.state.log_history if "eval/short/mean" in log}


@pytest.fixture(scope="module")
def run(_loaded_policy, tmp_path_factory):
    """A finished run with reporter and callback, evaluated before, after each second step, and at the end."""
    out = tmp_path_factory.mktemp("run")
    trainer = trainer_for(copy.deepcopy(_loaded_policy("internvl")), out)
    reporter = Recorder()
    trainer.add_callback(reporter)
    evaluation = EvaluationCallback(mixture(), [short, starts], every_steps=2, num_generations=2, **OPTIONS)
    evaluation.log_to(trainer)
    trainer.train()
    return trainer, evaluation, reporter, out


def test_the_log_has_the_rewards_before_while_and_after(run, greedy):
    trainer, evaluation, _, _ = run
    logged = entries(trainer)
    assert list(logged) == [0, 2, 3]
    for step, entry in logged.items():
        scores = evaluation.results[step].rewards
        assert entry["eval/short/mean"] == scores["short"].mean.value
        assert (entry["eval/short/low"], entry["eval/short/high"]) == scores["short"].mean.interval
        assert "eval/starts/low" not in entry  # five rows
        assert entry["eval/short/pass@2"] == scores["short"].pass_at[2].value
        assert 0 <= entry["eval/clipped"] <= 1
    assert evaluation.results[0].row_ids == greedy.row_ids


def test_reporters_get_the_same_numbers_under_eval(run):
    trainer, _, reporter, _ = run
    sent = {step: logs for step, logs in reporter.logs if "eval_short/mean" in logs}
    for step, entry in entries(trainer).items():
        assert {f"eval/{name[5:]}": value for name, value in sent[step].items() if name != "epoch"} == {
            name: value for name, value in entry.items() if name.startswith("eval/")
        }


def test_the_trainers_own_log_of_the_step_still_comes(run):
    trainer = run[0]
    assert [log["step"] for log in trainer.state.log_history if "reward" in log] == [3]


def test_every_evaluation_is_written_with_its_images(run):
    out = run[3] / "evaluation"
    names = ["step-000000", "step-000002", "step-000003"]
    assert sorted(path.stem for path in out.glob("*.json")) == names
    assert EvaluationResult.load(out / "step-000003.json") == run[1].results[3]
    for name in names:
        assert (out / f"{name}.html").read_text().count("data:image/jpeg") == 4


def test_the_first_and_last_evaluation_are_compared(run):
    trainer, evaluation, _, _ = run
    comparison = evaluation.comparison
    assert (comparison.before, comparison.after) == (evaluation.results[0], evaluation.results[3])
    final = evaluate(trainer.model, mixture(), [short, starts], num_generations=2, **OPTIONS)
    assert final == evaluation.results[3]
    assert json.loads(json.dumps(entries(trainer)[3]))["eval/short/mean"] == final.rewards["short"].mean.value


def test_training_is_as_without_the_callback(run, policy_for, tmp_path):
    trainer = trainer_for(policy_for("internvl"), tmp_path)
    trainer.train()
    for name in ("reward", "grad_norm", "completions/mean_length"):
        assert flat(run[0], name) == flat(trainer, name), name
    after = dict(trainer.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in run[0].model.named_parameters())


def test_other_trainers_evaluate_too_and_log_without_reporters(policy_for, tmp_path, caplog):
    rows = [
        row | {"completion": [{"role": "assistant", "content": "A cat."}]} for row in train_rows("internvl")
    ]
    evaluation = EvaluationCallback(mixture(), short, before=False, **OPTIONS)
    trainer = sft(policy_for("internvl"), rows, tmp_path)
    trainer.add_callback(evaluation)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert list(entries(trainer)) == [2]
    assert "log_to" not in caplog.text  # report_to is "none"
    with pytest.raises(ValueError, match=r"steps \[2\]. Expected two or more"):
        _ = evaluation.comparison


@pytest.mark.parametrize("quiet", [True, False])
def test_a_bar_shows_where_the_trainers_own_does(quiet, policy_for, tmp_path, capsys):
    trainer = sft(policy_for("internvl"), train_rows("internvl"), tmp_path, disable_tqdm=quiet)
    evaluation = EvaluationCallback(mixture()[:1], short, **OPTIONS)
    evaluation.on_train_begin(trainer.args, trainer.state, trainer.control, trainer.model)
    assert list(evaluation.results) == [0]
    assert ("evaluating" in capsys.readouterr().err) == (not quiet)


def test_a_run_with_reporters_that_will_get_nothing_is_warned_about(policy_for, tmp_path, caplog):
    trainer = trainer_for(policy_for("internvl"), tmp_path, max_steps=1)
    trainer.args.report_to = ["wandb"]
    trainer.add_callback(EvaluationCallback(mixture()[:1], short, after=False, **OPTIONS))
    trainer.train()
    assert "wandb will not get the evaluations" in caplog.text


def test_a_resumed_run_keeps_the_first_evaluation(policy_for, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    first = EvaluationCallback(mixture()[:2], short, **OPTIONS)
    trainer = trainer_for(policy_for("internvl"), tmp_path, **options | {"max_steps": 1})
    first.log_to(trainer)
    trainer.train()
    second = EvaluationCallback(mixture()[:2], short, **OPTIONS)
    resumed = trainer_for(policy_for("internvl"), tmp_path, **options | {"max_steps": 2})
    second.log_to(resumed)
    resumed.train(resume_from_checkpoint=True)
    assert sorted(second.results) == [0, 1, 2]
    assert second.results[0] == first.results[0]
    assert second.comparison.after == second.results[2]


def evaluations_on_the_card(trainer, folder, **card):
    save_adapter(trainer, folder, card=card)
    return {item.metric: item for item in stored(folder).evaluations}


def test_the_adapters_card_has_what_the_callback_measured(run, tmp_path):
    trainer, evaluation, _, _ = run
    saved = evaluations_on_the_card(trainer, tmp_path)
    assert set(saved) == {"short", "starts"}
    first, last = (evaluation.results[step].rewards["short"].mean for step in (0, 3))
    assert (saved["short"].before, saved["short"].after) == (first.value, last.value)
    assert (saved["short"].before_ci, saved["short"].after_ci) == (first.interval, last.interval)
    card = (tmp_path / "README.md").read_text()
    assert f"| held-out rows | short | 5 | {first.value:.4g} " in card
    assert "No evaluation was given" not in card
    assert ModelCard(card).data.eval_results[0].metric_value == last.value


def test_evaluations_that_are_given_take_their_place(run, tmp_path):
    given = Evaluation("Others", "accuracy", 10, 0.5)
    assert evaluations_on_the_card(run[0], tmp_path, evaluations=[given]) == {"accuracy": given}


def test_results_of_other_weights_are_not_on_the_card(policy_for, tmp_path, caplog):
    evaluation = EvaluationCallback(mixture()[:2], short, after=False, name="Two", **OPTIONS)
    trainer = trainer_for(policy_for("internvl"), tmp_path / "out", max_steps=1)
    trainer.add_callback(evaluation)
    trainer.train()
    with caplog.at_level(logging.WARNING):
        assert evaluations_on_the_card(trainer, tmp_path / "adapter") == {}
    assert "the model of step 1 was not evaluated (steps [0] were), so its card has no results of 'Two'" in (
        caplog.text
    )


@pytest.mark.parametrize("after", [True, False])
def test_the_best_model_is_evaluated_when_it_is_loaded_at_the_end(after, policy_for, tmp_path):
    calls = []

    def counted(completions, **_):
        calls.append(len(completions))
        return short(completions)

    options = OPTIONS | {"every_steps": 1, "before": False, "after": after}
    evaluation = EvaluationCallback(mixture()[:2], counted, **options)
    trainer = trainer_for(policy_for("internvl"), tmp_path / "out", max_steps=2)
    trainer.add_callback(evaluation)
    trainer.args.load_best_model_at_end = True
    trainer.train()
    assert calls == [2, 2, 2][: 2 + after]
    assert set(evaluations_on_the_card(trainer, tmp_path / "adapter")) == ({"counted"} if after else set())


def test_what_cannot_be_evaluated_again_is_refused():
    with pytest.raises(ValueError, match="read more than once"):
        EvaluationCallback(iter(mixture()), short)
    with pytest.raises(ValueError, match="pass one split"):
        EvaluationCallback({"test": mixture()}, short)
    with pytest.raises(ValueError, match="every_steps=0"):
        EvaluationCallback(mixture(), short, every_steps=0)
