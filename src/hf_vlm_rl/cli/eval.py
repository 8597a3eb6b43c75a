"""`hf-vlm-rl eval`."""

import argparse
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from .arguments import positive

FORMATS = {
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".yaml": "yaml",
    ".yml": "yaml",
}
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


def read_dataset(
    source: str, split: str, limit: int | None, on_error: Literal["raise", "skip"] = "raise"
) -> Iterable[Mapping[str, Any]]:
    """The rows of a file, a directory of `save_to_disk` or a dataset on the Hub.

    Raises:
        ValueError: If the file's suffix is unknown, there is no such split, or a row of conversations cannot
            be used and `on_error` is "raise".
    """
    from datasets import DatasetDict, load_dataset, load_from_disk
    from datasets.exceptions import DatasetGenerationError

    path = Path(source)
    if path.suffix in FORMATS and not path.exists():
        raise FileNotFoundError(f"Got {source!r}, and there is no such file.")
    if path.is_file():
        if path.suffix not in FORMATS:
            raise ValueError(f"Got {source!r}. Expected a file with one of the suffixes {sorted(FORMATS)}.")
        loader = _loader(path)
        if loader is not None:
            return _Rows(loader(path, on_error=on_error), None, limit)
        try:
            dataset = load_dataset(FORMATS[path.suffix], data_files=str(path), split="train")
        except DatasetGenerationError as error:
            raise ValueError(f"{source} cannot be read: {error.__cause__ or error}") from error
        return _Rows(dataset, path.parent, limit)
    if not path.is_dir():
        return _Rows(load_dataset(source, split=split), None, limit)
    dataset = load_from_disk(source)
    if isinstance(dataset, DatasetDict):
        if split not in dataset:
            raise ValueError(
                f"{source} has no split {split!r}. Expected one of {sorted(dataset)} in --split."
            )
        dataset = dataset[split]
    return _Rows(dataset, None, limit)


def _loader(path: Path) -> Callable | None:
    """What reads a file whose rows are not in TRL's columns."""
    from .. import data
    from ..data.build.json_file import is_list, records

    if FORMATS[path.suffix] == "yaml":
        return data.load_mixture
    if FORMATS[path.suffix] != "json":
        return None
    values = (record.value for record in records(path, is_list(path)))
    first = next((value for value in values if isinstance(value, dict)), {})
    if "conversations" in first:
        return data.load_llava
    return data.load_messages if "messages" in first else None


class _Rows:
    """The first rows of a dataset, with paths of images from its folder on."""

    def __init__(self, dataset: Any, folder: Path | None, limit: int | None):
        self.dataset, self.folder = dataset, folder
        self.length = len(dataset) if limit is None else min(limit, len(dataset))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in itertools.islice(self.dataset, self.length):
            yield {
                name: self._placed(value) if name in ("image", "images") else value
                for name, value in row.items()
            }

    def _placed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._placed(each) for each in value]
        if self.folder is None or not isinstance(value, str) or ":" in value:  # file:, data:, https:
            return value
        return str(self.folder / value)
