"""lmms-eval's tasks on a policy, and its numbers as an `EvaluationResult`: with intervals, to be compared."""

import hashlib
import io
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib.metadata import version
from statistics import fmean
from typing import Any

from .kept_rows import EvaluatedRow
from .result import EvaluationResult, RewardScores

KEPT = 100  # rows of each task, to look at


def task_manager(tasks: Sequence[str], folder: str | None = None) -> Any:
    """lmms-eval's own, which knows its tasks and those below a folder.

    Raises:
        ValueError: If it does not know one of `tasks`.
    """
    from lmms_eval.tasks import TaskManager

    manager = TaskManager(include_path=folder, model_name="hf_vlm_rl")
    if unknown := [task for task in tasks if not manager.match_tasks([task])]:
        raise ValueError(f"Got the tasks {unknown}. Expected names that `lmms-eval --tasks list` shows.")
    return manager


def run_tasks(policy: Any, tasks: Sequence[str], manager: Any, force_simple: bool, **options: Any) -> Any:
    """What lmms-eval's `simple_evaluate` returns for a policy; it gets `options`, such as `limit`.

    Raises:
        ValueError: If a task compares likelihoods and `force_simple` is False.
    """
    from lmms_eval.evaluator import simple_evaluate

    from .lmms import ChatPolicy, SimplePolicy

    model = (SimplePolicy if force_simple else ChatPolicy)(policy=policy, batch_size=options["batch_size"])
    try:
        return simple_evaluate(
            model=model, tasks=manager.match_tasks(tasks), task_manager=manager, bootstrap_iters=0, **options
        )
    except AssertionError as error:
        raise ValueError(f"lmms-eval: {error}. Choices by likelihood need force_simple=True.") from error


def from_lmms(results: Mapping[str, Any]) -> EvaluationResult:
    """What lmms-eval measured, for `compare`, pages and cards.

    ```python
    results = simple_evaluate(model=ChatPolicy(policy=policy), tasks=["ai2d", "pope"])
    print(compare(before, from_lmms(results)))
    ```

    A reward is a metric of a task, such as `ai2d exact_match`. In rows of other tasks it is None.

    Args:
        results: What `simple_evaluate` returned, with its samples.

    Warns:
        UserWarning: If a metric is left out, because rows have no number for it, or lmms-eval's number is not
            their mean, or less is better.

    Raises:
        ValueError: If there are no samples.
    """
    if not results.get("samples"):
        raise ValueError("Got no samples of lmms-eval. Expected simple_evaluate(..., log_samples=True).")
    row_ids: list[str] = []
    kept: list[EvaluatedRow] = []
    scores: dict[str, dict[int, float | None]] = {}  # by reward, then by the row's place
    benchmarks, left_out = {}, []
    for task, samples in sorted(results["samples"].items()):
        keys = [key for key in results["results"][task] if "," in key]
        filters = list(dict.fromkeys(key.split(",")[1] for key in keys))
        # lmms-eval lists all rows once for each filter of answers.
        count, first = len(samples) // (len(filters) or 1), len(row_ids)
        number = results["versions"].get(task)
        label = f"{task} (lmms-eval {version('lmms-eval')}"
        label += ")" if number in (None, "Yaml") else f", version {number})"
        own = {}
        for key in keys:
            metric, name = key.split(",")
            start = filters.index(name) * count
            values = [sample.get(metric) for sample in samples[start : start + count]]
            total, shown = results["results"][task][key], metric if len(filters) == 1 else key
            # A standard error, or what the task does not aggregate.
            if all(value is None for value in values) or isinstance(total, list):
                continue
            numbers = _numbers(values, total, metric, results["configs"][task])
            if numbers is None or results["higher_is_better"].get(task, {}).get(metric) is False:
                left_out.append(f"{task} {shown} = {total}")
                continue
            own[f"{task} {shown}"] = numbers
            benchmarks[f"{task} {shown}"] = {"dataset": label, "metric": shown}
        scores |= {reward: dict(enumerate(numbers, first)) for reward, numbers in own.items()}
        row_ids += [_row_id(label, sample) for sample in samples[:count]]
        for index, sample in enumerate(samples[: min(count, KEPT)]):
            prompt = next((text for text in sample["arguments"] if isinstance(text, str)), "")
            rewards: dict[str, tuple] = {reward: (numbers[index],) for reward, numbers in own.items()}
            answers, target = (_text(sample["resps"]),), {"target": _text(sample["target"])}
            kept.append(EvaluatedRow(first + index, prompt, answers, rewards, reference=target))
    if left_out:
        warnings.warn(
            f"Left out of lmms-eval's numbers: {', '.join(left_out)}. An interval needs a number for each "
            "row, with lmms-eval's as their mean, and more has to be better.",
            stacklevel=2,
        )
    places = range(len(row_ids))
    columns = {
        name: RewardScores(tuple((by_place.get(row),) for row in places)) for name, by_place in scores.items()
    }
    settings = {"num_generations": 1, "benchmarks": benchmarks}
    return EvaluationResult(columns, tuple(row_ids), tuple(kept), {}, None, None, settings)


def _numbers(
    values: Sequence[Any], total: Any, metric: str, config: Mapping[str, Any]
) -> list[float | None] | None:
    """What a task says of its rows, as numbers whose mean is `total`; None if there are none."""
    key = config.get("score_key", "score")
    named = {each["metric"]: each.get("aggregation") for each in config.get("metric_list", ())}

    def alone(value: Any) -> float:
        # Only where `total` is a share: aggregates of texts take a second for each row.
        if not 0 < total <= 1 or abs(total * len(values) - round(total * len(values))) > 1e-5 * len(values):
            raise ValueError
        with redirect_stdout(io.StringIO()):
            return {0: 0.0, 1: 1.0}[named[metric]([value])]

    ways: list[Callable[[Any], float]] = [float, lambda value: float(value[key]), alone]
    for read in ways:
        with suppress(Exception):  # a value is whatever the task's code returns
            numbers = [None if value is None else read(value) for value in values]
            mean = fmean(number for number in numbers if number is not None)
            if math.isclose(mean, total, rel_tol=1e-5, abs_tol=1e-5):
                return numbers
    return None


def _row_id(label: str, sample: Mapping[str, Any]) -> str:
    content = [label, *(sample[name] for name in ("doc_id", "doc", "target", "arguments"))]
    text = json.dumps(content, default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value, default=str)
