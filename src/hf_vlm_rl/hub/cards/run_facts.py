"""What is read from a trainer that has trained: its public attributes, in every TRL."""

import contextlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from ...scoring.reward_functions import RewardFunctionModel
from .facts import Curve, RunFacts
from .hyperparameters import telling
from .methods import METHODS, METRICS, method_of

PACKAGES = ("hf-vlm-rl", "trl", "transformers", "peft", "torch", "datasets")


def run_facts(trainer: Any) -> RunFacts:
    """The facts of a run."""
    method = method_of(type(trainer).__name__)
    state = trainer.state
    runtimes = [log["train_runtime"] for log in state.log_history if "train_runtime" in log]
    datasets = {"training": trainer.train_dataset, "evaluation": getattr(trainer, "eval_dataset", None)}
    return RunFacts(
        trainer=type(trainer).__name__,
        method=method,
        steps=state.global_step,
        seconds=runtimes[-1] if runtimes else None,
        hardware=_hardware(trainer.args),
        rewards=tuple(_rewards(trainer)),
        data={split: _rows(rows) for split, rows in datasets.items() if rows is not None},
        hyperparameters=telling(trainer.args),
        curve=learning_curve(state.log_history, METHODS[method].metrics if method else METRICS),
    )


def learning_curve(log_history: Sequence[Mapping[str, Any]], metrics: Iterable[str]) -> Curve | None:
    """The first of some metrics that was logged at two steps or more, if any."""
    for metric in metrics:
        points = {
            int(log["step"]): float(log[metric]) for log in log_history if metric in log and "step" in log
        }
        if len(points) > 1:
            return Curve(metric, tuple(sorted(points.items())))
    return None


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Versions of what is installed."""
    installed = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):  # ours, where the sources are run
            installed[package] = version(package)
    return installed


def _rewards(trainer: Any) -> list[tuple[str, float]]:
    # Only GRPO and RLOO have names and weights of reward functions.
    names = getattr(trainer, "reward_func_names", None)
    if names:
        weights = trainer.args.reward_weights or [1.0] * len(names)
        return list(zip(names, map(float, weights), strict=True))
    model = getattr(trainer, "reward_model", None)  # PPO's
    if not isinstance(model, RewardFunctionModel):
        return []
    return [(name, float(weight)) for name, _, weight in model.functions.named]


def _rows(dataset: Any) -> int | None:
    if isinstance(dataset, dict):
        counts = [_rows(part) for part in dataset.values()]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None
    try:
        return len(dataset)
    except TypeError:  # streaming
        return None


def _hardware(args: Any) -> str:
    if args.device.type == "cuda":
        return f"{args.world_size} x {torch.cuda.get_device_name(args.device)}"
    name = platform.machine() or "unknown"
    processes = f", {args.world_size} processes" if args.world_size > 1 else ""
    return f"{args.device.type.upper()} ({name}{processes})"
