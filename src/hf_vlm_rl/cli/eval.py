"""`hf-vlm-rl eval`: rewards of a model or an adapter on rows that it was not trained on."""

import argparse
import difflib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._install import pip_install
from .arguments import SEEDS, add_device, add_dtype, at_least, device_name, positive
from .data import add_row_options, flagged, row_options

if TYPE_CHECKING:
    from ..evaluation.result import EvaluationResult

REWARDS = "hf_vlm_rl.rewards"
# What tasks of lmms-eval leave open; the rest they say themselves.
OPEN = {"command", "lmms", "lmms_folder", "force_simple", "model", "base_model", "base_revision", "out"}
WRITTEN = ("result.json", "result.html", "comparison.html")
OPEN |= {"before", "limit", "batch_size", "dtype", "device"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `eval`."""
    parser.add_argument("model", help="Hub id or directory of a model or an adapter")
    parser.add_argument(
        "dataset",
        nargs="?",
        help="whatever load_any reads: a file (.jsonl, .json, .parquet, .csv, .tar, or a mixture, .yaml), a "
        "folder, or a Hub id; paths of images are relative to the file",
    )
    add_row_options(parser)
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--rewards", nargs="+", help="names from hf_vlm_rl.rewards, or module:function")
    measured.add_argument(
        "--lmms", metavar="TASKS", help="of lmms-eval, in place of dataset and rewards: mmstar,ai2d"
    )
    parser.add_argument("--lmms-folder", help="with further tasks for lmms-eval")
    parser.add_argument(
        "--force-simple", action="store_true", help="lmms-eval's, for tasks that compare likelihoods"
    )
    parser.add_argument("--base-model", help="Hub id or directory of an adapter's base, if it has moved")
    parser.add_argument("--base-revision", help="commit, tag or branch of the base")
    parser.add_argument("--out", type=Path, help="directory for result.json and result.html")
    parser.add_argument("--before", type=Path, help="result.json of another model, to compare with")
    parser.add_argument("--split", help="of a dataset with several (default: test)")
    parser.add_argument("--limit", type=at_least(1), help="evaluate the first so many rows")
    parser.add_argument("--batch-size", type=at_least(1), default=8, help="completions at once (default: 8)")
    parser.add_argument(
        "--max-new-tokens", type=at_least(1), default=512, help="longest completion (default: 512)"
    )
    parser.add_argument(
        "--num-generations", type=at_least(1), default=1, help="sampled completions per row, for pass@k"
    )
    parser.add_argument("--temperature", type=positive, help="sample at it, as GRPOTrainer from all tokens")
    parser.add_argument("--seed", type=at_least(0, SEEDS), default=0, help="of the sampling (default: 0)")
    parser.add_argument("--on-error", choices=("raise", "skip"), default="raise", help="for unusable rows")
    add_dtype(parser)
    add_device(parser)


def run(options: argparse.Namespace) -> None:
    """Evaluate a model or an adapter on a dataset, or in tasks of lmms-eval, and print a table."""
    # What can be wrong without torch and the model is found before they are loaded.
    _check(options)
    functions = [reward_function(name) for name in options.rewards or ()]
    from ..evaluation.comparison import compare
    from ..evaluation.result import EvaluationResult
    from ..rewards.calling import unique_names

    before = None if options.before is None else EvaluationResult.load(options.before)
    if before is not None and functions and set(unique_names(functions)).isdisjoint(before.rewards):
        raise ValueError(f"Got --before of {sorted(before.rewards)}. Expected one of --rewards in it.")
    result = _on_rows(options, functions) if options.lmms is None else _in_tasks(options)
    print(result)  # noqa: T201
    if options.out is not None:
        result.save(options.out / "result.json")
        result.save_html(options.out / "result.html")
    if before is not None:
        comparison = compare(before, result)
        print(f"\n{comparison}")  # noqa: T201
        if options.out is not None:
            comparison.save_html(options.out / "comparison.html")


def _check(options: argparse.Namespace) -> None:
    if options.temperature is not None and not 0.01 <= options.temperature <= 100:
        raise ValueError(f"Got --temperature {options.temperature}. Expected 0.01 to 100.")
    written = [] if options.out is None else [options.out / name for name in WRITTEN]
    if options.before is not None and options.before.resolve() in [path.resolve() for path in written]:
        raise ValueError(f"Got --before and --out of one file, {options.before}. Expected another directory.")
    if bad := next((path for path in written if path.is_dir()), None):
        raise ValueError(f"Got --out with the directory {bad}. Expected no directory of that name.")
    if options.lmms is None:
        if options.dataset is None:
            raise ValueError("Got no dataset. --rewards needs one; --lmms has its tasks'.")
        if options.force_simple or options.lmms_folder is not None:
            raise ValueError("Got --force-simple or --lmms-folder without --lmms, of whose tasks they are.")
        return
    parser = argparse.ArgumentParser()
    arguments(parser)
    asked = {name for name, value in vars(options).items() if value != parser.get_default(name)}
    if unused := sorted(name.replace("_", "-") for name in asked - OPEN):
        raise ValueError(f"Got {', '.join(unused)} with --lmms, whose tasks have their own. Leave them out.")
    if importlib.util.find_spec("lmms_eval") is None:
        raise ImportError(f"--lmms needs lmms-eval: {pip_install('lmms')}")


def _policy(options: argparse.Namespace) -> Any:
    from ..loading.auto import AutoVLMPolicy

    device = device_name(options.device)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    return AutoVLMPolicy.from_pretrained(
        options.model,
        base_model=options.base_model,
        base_revision=options.base_revision,
        dtype=options.dtype,
        device_map=device,
    )


def _in_tasks(options: argparse.Namespace) -> "EvaluationResult":
    from ..evaluation.lmms_results import from_lmms, run_tasks, task_manager

    tasks = options.lmms.split(",")
    manager = task_manager(tasks, options.lmms_folder)
    policy = _policy(options)
    sizes = {"batch_size": options.batch_size, "limit": options.limit}
    return from_lmms(run_tasks(policy, tasks, manager, options.force_simple, **sizes))


def _on_rows(options: argparse.Namespace, functions: list[Callable]) -> "EvaluationResult":
    from ..data.any_file import load_any
    from ..errors import DataError, RewardError
    from ..evaluation.run import evaluate

    try:
        rows = load_any(options.dataset, on_error=options.on_error, **row_options(options))
    except DataError as error:
        raise ValueError(flagged(str(error))) from error
    if options.limit is not None:
        rows = rows.select(range(min(options.limit, len(rows))))
    policy = _policy(options)
    sampling: dict[str, Any] = {}
    if options.temperature is not None:  # a checkpoint may say top_k=1, as those of Qwen2-VL
        sampling = {"do_sample": True, "temperature": options.temperature, "top_p": 1.0, "top_k": 0}
    try:
        return evaluate(
            policy,
            rows,
            functions,
            batch_size=options.batch_size,
            max_new_tokens=options.max_new_tokens,
            num_generations=options.num_generations,
            seed=options.seed,
            on_error=options.on_error,
            progress=True,
            **sampling,
        )
    except RewardError as error:
        raise ValueError(str(error)) from error


def reward_function(name: str) -> Callable:
    """The reward function that a name stands for: one of `hf_vlm_rl.rewards`, or `module:function`.

    Raises:
        ValueError: If there is none.
    """
    module_name, _, attribute = name.rpartition(":")
    if os.getcwd() not in sys.path:  # as for Python's own `-m`
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name or REWARDS)
    except Exception as error:  # what a module of the user's raises
        why = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"Got the reward {name!r}: {why}. {_EXPECTED}") from error
    function = getattr(module, attribute, None)  # any module that the user names
    if function is None:
        close = difflib.get_close_matches(attribute, dir(module), n=1)
        meant = f" Did you mean {name.removesuffix(attribute)}{close[0]}?" if close else ""
        raise ValueError(
            f"Got the reward {name!r}, and {module.__name__} has no {attribute}.{meant} {_EXPECTED}"
        )
    if isinstance(function, type) or not callable(function) or inspect.iscoroutinefunction(function):
        raise ValueError(
            f"Got the reward {name!r}, which is {function!r}. Expected a function; for a class, write a "
            f"module with an instance of it, such as mine = {attribute}(...), and pass module:mine."
        )
    return function


_EXPECTED = f"Expected --rewards with names from {REWARDS}, such as iou_reward, or module:function."
