"""What is measured of a policy: accuracy on held-out pictures, and whether GRPO has something to sharpen."""

from collections.abc import Callable

from datasets import Dataset

from hf_vlm_rl.evaluation import Comparison, Estimate, EvaluationResult, compare, evaluate
from hf_vlm_rl.rewards import ChoiceReward

from .logos import BRANDS
from .train import GROUP, LONGEST, TEMPERATURE

REWARD = ChoiceReward(BRANDS)
NAME = "choice_reward"
BATCH = 100


def accuracy(model, dataset: Dataset, reward: Callable = REWARD, batch_size: int = BATCH) -> EvaluationResult:
    """Greedy answers to all rows, every one kept, and the share that is right."""
    return evaluate(
        model,
        dataset,
        reward,
        batch_size=batch_size,
        max_new_tokens=LONGEST,
        keep_rows=len(dataset),
        progress=True,
    )


def sample(model, dataset: Dataset) -> EvaluationResult:
    """Answers sampled as GRPO will sample them: pass@1 is where it starts, pass@8 what it can sharpen."""
    return evaluate(
        model,
        dataset,
        REWARD,
        batch_size=BATCH,
        num_generations=GROUP,
        temperature=TEMPERATURE,
        max_new_tokens=LONGEST,
        keep_rows=len(dataset),
        progress=True,
    )


def answers(result: EvaluationResult) -> list[str]:
    """The answer to each row, of an evaluation with one completion a row."""
    return [row.completions[0].strip() for row in result.rows]


def change(before: EvaluationResult, after: EvaluationResult, name: str = NAME) -> dict:
    """A reward before and after with 95 % intervals, their paired difference, and the p of its test."""
    reward = compared(before, after).rewards[name]
    shares = {"before": reward.before, "after": reward.after, "gain": reward.difference}
    return {name: _numbers(share) for name, share in shares.items()} | {"p_value": reward.p_value}


def compared(before: EvaluationResult, after: EvaluationResult) -> Comparison:
    """The paired comparison of two evaluations of the same rows."""
    return compare(before, after)


def pass_at(result: EvaluationResult) -> dict[str, float]:
    """pass@k by k."""
    return {str(k): estimate.value for k, estimate in result.rewards[NAME].pass_at.items()}


def _numbers(estimate: Estimate) -> dict[str, float]:
    low, high = estimate.interval
    return {"value": estimate.value, "low": low, "high": high}
