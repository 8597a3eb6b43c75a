"""`headroom`: whether training by trial and reward has something to sharpen, before it starts."""

from dataclasses import dataclass

from ..rewards.diagnosis.signs import SILENT
from .result import EvaluationResult

LITTLE = 0.1  # pass@k above pass@1, below which it is said


@dataclass(frozen=True)
class Headroom:
    """What sampled completions say of a policy before GRPO or RLOO; `str()` of it is a few sentences.

    Attributes:
        reward: The reward's name.
        k: Completions of each prompt.
        first: pass@1, the share of completions that are right: where training starts.
        best: pass@k, the share of prompts with a right completion: what training can sharpen.
        solved: Share of the prompts whose completions are all right and get the same reward.
        hopeless: Share of the prompts whose completions are all wrong and get the same reward.
    """

    reward: str
    k: int
    first: float
    best: float
    solved: float
    hopeless: float

    @property
    def silent(self) -> float:
        """Share of the prompts that give no gradient, as all their completions get the same reward."""
        return self.solved + self.hopeless

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to look at, in sentences."""
        warnings = []
        if self.best - self.first < LITTLE:
            what = "Take harder prompts" if self.first > 0.5 else "Warm up with SFT, or take easier prompts"
            warnings.append(
                f"pass@{self.k} is {100 * (self.best - self.first):.0f} points above pass@1: there is little "
                f"to sharpen. {what}."
            )
        if self.silent > SILENT:
            what = (
                "Drop prompts that are always right, or raise the temperature"
                if self.solved >= self.hopeless
                else "Warm up with SFT, take easier prompts, or give partial credit"
            )
            warnings.append(f"{self.silent:.0%} of the prompts give no gradient. {what}.")
        return tuple(warnings)

    def __str__(self) -> str:
        first = (
            f"{self.reward}: pass@1 = {self.first:.2f}, pass@{self.k} = {self.best:.2f}; {self.silent:.0%} "
            f"of the prompts are silent ({self.solved:.0%} always right, {self.hopeless:.0%} always wrong)."
        )
        return "\n".join([first, *(f"! {warning}" for warning in self.warnings)])


def headroom(result: EvaluationResult, reward: str | None = None) -> Headroom:
    """Say what a reward can make of a policy that answers as in `result`.

    ```python
    sampling = {"temperature": 1.2, "top_p": 1.0, "top_k": 0}  # as GRPOTrainer samples
    print(headroom(evaluate(policy, selection, reward, num_generations=8, **sampling)))
    ```

    Args:
        result: Of several completions a prompt, sampled as the trainer will sample them.
        reward: Name of a reward in it. Default: the only one.

    Raises:
        ValueError: If there is no such reward, or it has no pass@k: with one completion a prompt, or values
            other than 0 and 1 and no threshold; or if it gave no value at all.
    """
    names = list(result.rewards)
    name = names[0] if reward is None and len(names) == 1 else reward
    if name not in names:
        raise ValueError(f"Got reward={reward!r}. Expected one of {', '.join(names)}.")
    scores = result.rewards[name]
    if len(scores.pass_at) < 2:
        raise ValueError(
            f"Got an evaluation without pass@k of {name}. Expected several completions a prompt "
            "(num_generations=8), and values of 0 and 1 or a threshold (thresholds=)."
        )
    groups = [group for group in scores.given if group]
    if not groups:
        raise ValueError(f"Got an evaluation in which {name} gave no completion a value: each was None.")
    # A reward may abstain now and then: both shares are of the prompts with k values.
    k = max(k for k in scores.pass_at if any(len(group) >= k for group in groups))
    full = [group for group in groups if len(group) >= k]
    right_of_full = [sum(bool(result.passes(name, value)) for value in group) / len(group) for group in full]
    alike = [group[0] for group in groups if min(group) == max(group)]
    right = sum(bool(result.passes(name, value)) for value in alike)
    return Headroom(
        reward=name,
        k=k,
        first=sum(right_of_full) / len(full),
        best=scores.pass_at[k].value,
        solved=right / len(groups),
        hopeless=(len(alike) - right) / len(groups),
    )
