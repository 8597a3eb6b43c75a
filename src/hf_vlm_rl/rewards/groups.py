"""Groups: the completions of one prompt, found among the rows of a batch."""

import itertools
from collections.abc import Mapping
from typing import Any

import PIL.Image

# Differ between the completions of one prompt, or are no columns.
_VARYING = frozenset(("completions", "completion_ids", "environments", "prompts"))


def groups_of(
    prompts: list, columns: Mapping[str, Any] | None = None, num_generations: int | None = None
) -> list[range]:
    """The rows of each group, as trainers order them: the completions of a prompt follow each other.

    Lists of B values in `columns`, the reward function's keyword arguments, must be equal within a group,
    too: two images with the same question are two groups. `num_generations`, the size of a group, is needed
    where rows of the dataset are equal in everything.

    Raises:
        ValueError: If the rows are no multiple of `num_generations`.
    """
    rows = len(prompts)
    if num_generations is not None:
        if num_generations < 1 or rows % num_generations:
            raise ValueError(
                f"Got {rows} rows and num_generations={num_generations}. Expected whole groups in each "
                "process: make per_device_train_batch_size * steps_per_generation a multiple of it."
            )
        return [range(start, start + num_generations) for start in range(0, rows, num_generations)]
    lists = [prompts] + [
        values
        for name, values in (columns or {}).items()
        if name not in _VARYING and isinstance(values, list) and len(values) == rows
    ]
    changes = [
        row for row in range(1, rows) if not all(_same(values[row - 1], values[row]) for values in lists)
    ]
    return [range(start, end) for start, end in itertools.pairwise([0, *changes, rows]) if start < end]


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, PIL.Image.Image) and isinstance(b, PIL.Image.Image):
        return a.size == b.size and a.mode == b.mode and a.tobytes() == b.tobytes()
    if hasattr(a, "tolist") and hasattr(b, "tolist"):  # arrays of numpy, torch or others
        return a.shape == b.shape and a.tolist() == b.tolist()
    return type(a) is type(b) and (a == b or a != a)  # nan too
