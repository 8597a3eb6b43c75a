"""`hf-vlm-rl eval`."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..data.any_file import (
    read_dataset,
)
from .arguments import positive

REWARDS = "hf_vlm_rl.rewards"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `eval`."""
    parser.add_argument("model", help="Hub id or directory of a model or an adapter")
    parser.add_argument(
        "dataset",
        help="file (.jsonl, .json, .parquet, .csv), directory of save_to_disk, or Hub id, with the columns "
        "prompt, image or images, and what the rewards read; or rows with conversations (LLaVA, VLM-R1) or "
        "messages, or a mixture (.yaml) of such; paths of images are relative to the file",
    )
    parser.add_argument(
        "--rewards", nargs="+", required=True, help="names from hf_vlm_rl.rewards, or module:function"
    )
    parser.add_argument("--out", type=Path, help="directory for result.json and result.html")
    parser.add_argument("--before", type=Path, help="result.json of another model, to compare with")
    parser.add_argument("--split", default="test", help="of a dataset with several (default: test)")
    parser.add_argument("--limit", type=positive(int), help="evaluate the first so many rows")
    parser.add_argument(
        "--batch-size", type=positive(int), default=8, help="completions at once (default: 8)"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive(int), default=512, help="longest completion (default: 512)"
    )
    parser.add_argument(
        "--num-generations", type=positive(int), default=1, help="sampled completions per row, for pass@k"
    )
    parser.add_argument("--temperature", type=positive(float), help="sample at this temperature")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling (default: 0)")
    parser.add_argument("--on-error", choices=("raise", "skip"), default="raise", help="for unusable rows")
    parser.add_argument("--dtype", default="auto", help="bfloat16, float32, ... (default: the checkpoint's)")
    parser.add_argument("--device", help="default: an accelerator if there is one")


def run(given: argparse.Namespace) -> None:
    """Evaluate a model or an adapter on a dataset and print a table of its rewards."""
    import torch

    from ..errors import RewardError
    from ..evaluation.comparison import compare
    from ..evaluation.result import EvaluationResult
    from ..evaluation.run import evaluate
    from ..loading.auto import AutoVLMPolicy

    # What can be wrong without the model is found before it is loaded.
    rewards = [reward(name) for name in given.rewards]
    before = None if given.before is None else EvaluationResult.load(given.before)
    rows = read_dataset(given.dataset, given.split, given.limit, given.on_error)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    device = given.device or str(accelerator)
    policy = AutoVLMPolicy.from_pretrained(given.model, dtype=given.dtype, device_map=device)
    sampling = {} if given.temperature is None else {"do_sample": True, "temperature": given.temperature}
    try:
        result = evaluate(
            policy,
            rows,
            rewards,
            batch_size=given.batch_size,
            max_new_tokens=given.max_new_tokens,
            num_generations=given.num_generations,
            seed=given.seed,
            on_error=given.on_error,
            progress=True,
            **sampling,
        )
    except RewardError as error:
        raise ValueError(str(error)) from error
    if given.out is not None:
        result.save(given.out / "result.json")
        result.save_html(given.out / "result.html")
    print(result)  # noqa: T201
    if before is not None:
        comparison = compare(before, result)
        print(f"\n{comparison}")  # noqa: T201
        if given.out is not None:
            comparison.save_html(given.out / "comparison.html")


def reward(name: str) -> Callable:
    """The reward function that `name` says: one of `hf_vlm_rl.rewards`, or `module:function`.

    Raises:
        ValueError: If there is none.
    """
    module, _, attribute = name.rpartition(":")
    if os.getcwd() not in sys.path:  # as for Python's own `-m`
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module or REWARDS), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"Got the reward {name!r}: {error}. Expected a name from {REWARDS}, such as iou_reward, or "
            "module:function."
        ) from error
    if isinstance(found, type) or not callable(found):
        raise ValueError(
            f"Got the reward {name!r}, which is {found!r}. Expected a function; for a class, write a module "
            f"with an instance of it, such as mine = {attribute}(...), and pass module:mine."
        )
    return found
