"""Losses, masks and advantages of stock GRPO: a run on a policy is the run on the stock model."""

from dataclasses import dataclass, fields

import pytest
import torch
from transformers import set_seed
from trl import GRPOConfig

from tests.trainers.homes import LANE
from tests.trainers.options import DEFAULT, MISSING, OPTIONS
from tests.trainers.runs import by_ids, cat, cup, grpo, parameters, user, woman

pytestmark = pytest.mark.trl

FAMILY, SECOND = "qwen2_5_vl", "internvl"
DEFAULTS = {field.name: field.default for field in fields(GRPOConfig)}
# Four groups of four, in micro-batches of four rows, two of them to an update. Ratios differ from 1 from the
# second update on, and the third one sees rows again. Plain gradient descent: Adam would take a whole step
# where a gradient is nothing but rounding.
RUN = {
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "steps_per_generation": 4,
    "gradient_accumulation_steps": 2,
    "num_iterations": 2,
    "max_steps": 4,
    "max_completion_length": 6,
    "optim": "sgd",
    "learning_rate": 0.3,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 1e9,
    "beta": 0.1,
}
# Of the largest value of a metric over the updates, and of the largest change of a weight.
TOLERANCE = 3e-5


@dataclass
class Run:
    """Logged metrics by name, a value for each update, and what training added to each adapter's weight."""

    metrics: dict[str, torch.Tensor]
    changes: dict[str, torch.Tensor]


def length(completion_ids, **columns):
    return [float(len(ids)) for ids in completion_ids]


def rows() -> list[dict]:
    return [
        {"prompt": user("Compare them."), "images": [woman(), cup()]},
        {"prompt": user("Describe the image."), "images": [cup()]},
        {"prompt": user("Say what you see."), "images": [cat()]},
        {"prompt": user("Describe the image."), "images": [woman()]},
    ]


def metrics(trainer) -> dict[str, torch.Tensor]:
    """What was logged at the updates, except for times."""
    updates = [log for log in trainer.state.log_history if "grad_norm" in log]
    names = {name for log in updates for name in log if "time" not in name}
    return {name: torch.tensor([float(log[name]) for log in updates if name in log]) for name in names}


@pytest.fixture
def run(policy_for, bare_for, native_processor_for, tmp_path):
    """`run(family, stock, **settings)`: a run on the policy, or on the stock model with its own processor."""

    def run(family: str, stock: bool, **settings) -> Run:
        policy = policy_for(family)
        model = bare_for(family) if stock else policy
        # The stock model may sample placeholders. Some completions end, and some are truncated.
        sampling = {
            "suppress_tokens": list(policy.placeholder_ids),
            "sequence_bias": [[[policy.processing_class.eos_token_id], 13.0]],
            "temperature": 3.0,
        }
        set_seed(3)
        trainer = grpo(
            model,
            rows(),
            tmp_path,
            processing_class=native_processor_for(family) if stock else None,
            peft=policy.lora_config(r=4),
            reward=[by_ids, length],
            generation_kwargs=sampling,
            **RUN | settings,
        )
        before = parameters(trainer.model)
        trainer.train()
        if not stock:
            report = policy.sharing_report()
            assert report["images_encoded"] == 3
            assert report["tokens_computed"] < 0.5 * report["tokens"]
        after = parameters(trainer.model)
        return Run(metrics(trainer), {name: after[name] - before[name] for name in after if "lora_" in name})

    return run


@pytest.fixture(scope="module")
def known():
    """Stock runs by family and settings, each run once."""
    return {}


@pytest.fixture
def without(run, known):
    """`without(family, settings)`: the stock run with no other settings than these."""

    def stock(family: str, settings: dict) -> Run:
        key = (family, *settings.items())
        if key not in known:
            known[key] = run(family, stock=True, **settings)
        return known[key]

    return stock


def distance(values: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    """The largest difference between values of one name, relative to the largest of all `others`."""
    largest = max(value.abs().max() for value in others.values())
    return float(max((values[name] - other).abs().max() for name, other in others.items()) / largest)


def check_equal(policy: Run, stock: Run) -> None:
    assert policy.metrics.keys() == stock.metrics.keys()
    for name, values in stock.metrics.items():
        bound = TOLERANCE * float(values.nan_to_num().abs().max())
        torch.testing.assert_close(
            policy.metrics[name],
            values,
            rtol=0,
            atol=bound,
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    assert policy.changes.keys() == stock.changes.keys()
    assert distance(policy.changes, stock.changes) < TOLERANCE


def test_the_defaults(run, without):
    check_equal(run(FAMILY, stock=False), without(FAMILY, {}))


def cases() -> list:
    core = [pytest.param(FAMILY, option, id=str(option)) for option in OPTIONS if option.core]
    second = [(SECOND, option) for option in OPTIONS if option.core]
    others = [*second, *((FAMILY, option) for option in OPTIONS if not option.core)]
    slow = [
        pytest.param(family, option, id=f"{option}-{family}", marks=pytest.mark.slow)
        for family, option in others
    ]
    return core + slow


@pytest.mark.parametrize(("which", "option"), cases())
def test_an_option(which, option, run, without):
    settings = option.beside | {option.name: option.value}
    stock = run(which, stock=True, **settings)
    check_equal(run(which, stock=False, **settings), stock)
    # TRL lets some options act only under conditions that a run may miss.
    assert distance(stock.changes, without(which, option.beside).changes) > 0.01


@pytest.mark.ppo
def test_the_table_says_what_this_trl_has():
    assert {option.name for option in OPTIONS} - DEFAULTS.keys() == MISSING.get(LANE, set())
    unchanged = {option.name for option in OPTIONS if DEFAULTS.get(option.name) == option.value}
    assert unchanged == DEFAULT.get(LANE, set())
