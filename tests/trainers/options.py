"""Losses, masks and advantages that `GRPOConfig` chooses among: what a table of docs/trainers.md is made of.

`test_options.py` runs each of them on a policy and on the stock model.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.trainers.ways import FIRST


@dataclass(frozen=True)
class Option:
    """One value of an option.

    Attributes:
        name: The field of `GRPOConfig`.
        value: What it is set to; the default of no TRL but those that `DEFAULT` names.
        changes: What it changes, for the table.
        beside: Fields that are set with it, because it acts or is recommended only with them.
        core: Whether `make test` runs it, and `make test-slow` on a second family; the others run in
            `make test-slow`, on one.
    """

    name: str
    value: Any
    changes: str
    beside: dict[str, Any] = field(default_factory=dict)
    core: bool = False

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


RATIOS = "ratios"
CLIPPING = "where ratios are clipped"
MEAN = "the mean over tokens"
TOKENS = "which tokens count"
COMPLETIONS = "which completions count"
ENTROPY = "a bonus for entropy"
KL = "the KL to the reference"
ADVANTAGES = "advantages"
BY_SEQUENCE = {"importance_sampling_level": "sequence"}
OPTIONS = (
    Option("loss_type", "grpo", MEAN),
    Option("loss_type", "dr_grpo", MEAN),
    Option("loss_type", "bnpo", MEAN),
    Option("loss_type", "luspo", MEAN, BY_SEQUENCE),
    Option("loss_type", "cispo", RATIOS, {"epsilon_high": 1.5}, core=True),
    Option("loss_type", "sapo", RATIOS),
    Option("loss_type", "vespo", RATIOS),
    Option("importance_sampling_level", "sequence", RATIOS, {"loss_type": "grpo"}, core=True),
    Option("epsilon_high", 0.5, CLIPPING),
    Option("delta", 1.02, CLIPPING, {"epsilon_high": 0.01}),
    Option("top_entropy_quantile", 0.3, TOKENS, core=True),
    Option("mask_truncated_completions", True, COMPLETIONS, core=True),
    Option("off_policy_mask_threshold", 0.02, COMPLETIONS, core=True),
    Option("entropy_coef", 0.1, ENTROPY),
    Option("use_adaptive_entropy", True, ENTROPY, {"entropy_target": 100.0, "entropy_coef_delta": 0.1}),
    Option("use_bias_correction_kl", False, KL),
    Option("scale_rewards", "batch", ADVANTAGES),
    Option("scale_rewards", "none", ADVANTAGES),
    Option("multi_objective_aggregation", "normalize_then_sum", ADVANTAGES),
)
# What `GRPOConfig` of a TRL does not have, and whose value here is its default.
MISSING = {FIRST: {"entropy_coef", "use_adaptive_entropy"}}
DEFAULT = {FIRST: {"use_bias_correction_kl"}}
