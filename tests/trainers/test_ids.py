"""Trainers of TRL that know only texts and ids train on images that come inside these."""

import pytest
from transformers import set_seed

from tests.trainers.homes import home
from tests.trainers.ids_runs import RUNS, carried, changed, trainer_of
from tests.trainers.runs import parameters, split_by_change, square

pytestmark = pytest.mark.trl

# Of what a run logs, what differs between equal runs.
TIMES = ("runtime", "per_second", "step_time", "profiling")


def skip_without(name: str) -> None:
    home(RUNS[name].package, name)


def trained(name, policy, image, out):
    """A trainer after two steps, what its parameters were, and what it logged."""
    set_seed(0)
    trainer = trainer_of(name, policy, carried(policy, RUNS[name].rows(square(image))), out)
    before = parameters(trainer.model)
    trainer.train()
    history = [
        {key: value for key, value in log.items() if not any(time in key for time in TIMES)}
        for log in trainer.state.log_history
    ]
    return trainer, before, history


class Blind:
    """Counts the rows that backbones are given without an image, by forwards of more than a token."""

    def __init__(self, *policies):
        self.rows, self.seen = 0, 0
        for policy in policies:
            policy.base_model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, module, args, kwargs):
        ids = args[0] if args else kwargs.get("input_ids")
        if ids is None or ids.shape[1] == 1:
            return
        with_image = (ids == module.processing_class.state.placeholder_id).any(dim=1)
        self.seen += int(with_image.sum())
        self.rows += int((~with_image).sum())


@pytest.mark.parametrize("name", RUNS)
def test_another_image_gives_another_run_and_lora_alone_moves(name, policy_for, tmp_path):
    skip_without(name)
    trainer, before, logs = trained(name, policy_for("qwen2_5_vl"), "cat", tmp_path)
    assert split_by_change(trainer.model, before) == (set(), set())
    assert trained(name, policy_for("qwen2_5_vl"), "cat", tmp_path)[2] == logs
    assert trained(name, policy_for("qwen2_5_vl"), "coffee", tmp_path)[2] != logs


@pytest.mark.parametrize("name", RUNS)
def test_no_forward_of_policy_teacher_or_reference_lacks_an_image(name, policy_for, tmp_path):
    skip_without(name)
    policy = policy_for("internvl")
    rows = [row for row in RUNS[name].rows(square("cat")) if row["images"]] * 3
    trainer = trainer_of(name, policy, carried(policy, rows), tmp_path, max_steps=1)
    # A teacher, a reference: whatever of the trainer is a policy.
    held = [getattr(trainer, other, None) for other in ("ref_model", "teacher_model")]
    blind = Blind(policy, *(model for model in held if type(model) is type(policy) and model is not policy))
    trainer.train()
    assert blind.seen > 0
    assert blind.rows == 0


def test_a_teacher_that_differs_is_one_that_teaches(policy_for):
    policy = policy_for("internvl")
    assert any(
        not one.equal(other)
        for one, other in zip(policy.parameters(), changed(policy).parameters(), strict=True)
    )
