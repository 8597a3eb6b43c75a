"""Training methods by trainer: the Hub's tag, the paper, and the metric that shows learning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What a card says about a training method.

    `metrics` are names in the trainer's log, the most telling first. `paper` is an arXiv id; None where there
    is no single paper.
    """

    name: str
    metrics: tuple[str, ...]
    paper: str | None = None


# By the tag that the Hub knows the method by: class names of trainers begin with it, or with Async and it.
METHODS: dict[str, Method] = {
    "grpo": Method("Group Relative Policy Optimization (GRPO)", ("reward",), "2402.03300"),
    "rloo": Method("REINFORCE Leave-One-Out (RLOO)", ("reward",), "2402.14740"),
    "dpo": Method(
        "Direct Preference Optimization (DPO)",
        ("rewards/margins", "rewards/accuracies", "loss"),
        "2305.18290",
    ),
    "kto": Method("Kahneman-Tversky Optimization (KTO)", ("rewards/margins", "loss"), "2402.01306"),
    "ppo": Method(
        "Proximal Policy Optimization (PPO)", ("objective/scores", "objective/rlhf_reward"), "1707.06347"
    ),
    "sft": Method("supervised fine-tuning (SFT)", ("mean_token_accuracy", "loss")),
}


# Of all other trainers.
METRICS = ("reward", "loss")


def method_of(trainer: str) -> str | None:
    """Key of `METHODS` for a trainer's class name; None for a trainer of another method."""
    name = trainer.lower().removeprefix("async")
    return next((key for key in METHODS if name.startswith(key)), None)
