"""How long rows are in tokens, images included, and which are too long: known before training."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from datasets import Dataset

from ...errors import DataError
from ..undecoded import need_dataset, stored_rows
from .row_tokens import RowTokens
from .stand_in import Counter

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OverlongReport:
    """What `filter_overlong` found; `str()` of it is a sentence.

    Attributes:
        max_tokens: The limit.
        lengths: int64 (rows,): tokens of every row before filtering.
    """

    max_tokens: int
    lengths: np.ndarray

    @property
    def dropped(self) -> list[int]:
        """Indices of the rows that are too long, in the dataset before filtering."""
        return np.flatnonzero(self.lengths > self.max_tokens).tolist()

    @property
    def longest(self) -> int:
        """Tokens of the longest row; 0 without rows."""
        return int(self.lengths.max(initial=0))

    def __str__(self) -> str:
        dropped = self.dropped
        first = ", ".join(map(str, dropped[:10])) + (", ..." if len(dropped) > 10 else "")
        rows = f" (row {first})" if dropped else ""
        return (
            f"{len(dropped)} of {len(self.lengths)} rows have more than {self.max_tokens} tokens{rows}; the "
            f"longest has {self.longest}."
        )


def prompt_lengths(
    dataset: Dataset,
    processing_class: Any,
    *,
    completions: bool = False,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    process_images: bool = False,
    num_proc: int | None = None,
) -> np.ndarray:
    """Tokens of each row as trainers make them, image tokens included.

    Rows go through the policy's own processing class. How many tokens an image has depends on its size in all
    built-in families: sizes are read from the files' headers, and one blank image of each size is processed.

    Args:
        dataset: Rows in TRL's columns, images in columns or in messages.
        processing_class: The policy's.
        completions: Count what DPO and SFT see: prompt and the longest of `completion`, `chosen` and
            `rejected`, or `messages`. Otherwise the prompt alone, as GRPO, RLOO and PPO begin with.
        chat_template_kwargs: As in the trainer's arguments.
        process_images: Decode and process every image, which also finds broken ones; many times slower.
            Always so for families whose row does not say `counts_by_size`.
        num_proc: Processes to share the rows.

    Returns:
        int64 (rows,).

    Raises:
        DataError: If a row lacks the columns; names the row.
        ImageError: If a row's images are unusable or do not fit its placeholders; names the row.
    """
    need_dataset(dataset, "prompt_lengths")
    count = RowTokens(
        Counter(processing_class, process_images), completions, dict(chat_template_kwargs or {})
    )
    counted = stored_rows(dataset).map(
        lambda row, index: {"tokens": count(index, row)},
        with_indices=True,
        remove_columns=dataset.column_names,
        num_proc=num_proc,
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint="counted",
        desc="counting tokens",
    )
    return np.array(counted["tokens"], dtype=np.int64)


def filter_overlong(
    dataset: Dataset,
    processing_class: Any,
    max_tokens: int,
    *,
    on_overlong: Literal["drop", "raise"] = "drop",
    **options: Any,
) -> tuple[Dataset, OverlongReport]:
    """Leave out rows that are too long, before training instead of in its middle.

    ```python
    dataset, report = filter_overlong(dataset, policy.processing_class, 4096, num_proc=8)
    print(report)  # 3 of 1000 rows have more than 4096 tokens (row 12, 80, 633); the longest has 9210.
    ```

    Args:
        dataset: As for `prompt_lengths`.
        processing_class: The policy's.
        max_tokens: The most tokens a row may have.
        on_overlong: "drop" them and log a warning, or "raise".
        **options: For `prompt_lengths`.

    Returns:
        The other rows in their order, and what was found.

    Raises:
        DataError: If a row is too long and `on_overlong` is "raise", or all rows are; as `prompt_lengths`.
        ImageError: As `prompt_lengths`.
        ValueError: If an argument is out of range.
    """
    if max_tokens < 1 or on_overlong not in ("drop", "raise"):
        raise ValueError(
            f"Got {max_tokens=} and {on_overlong=}. Expected 1 token or more, and 'drop' or 'raise'."
        )
    report = OverlongReport(max_tokens, prompt_lengths(dataset, processing_class, **options))
    dropped = set(report.dropped)
    if dropped and (on_overlong == "raise" or len(dropped) == len(dataset)):
        raise DataError(
            f"{report} Raise max_tokens, drop rows, or give the processor fewer pixels or tiles per image."
        )
    if not dropped:
        return dataset, report
    logger.warning("filter_overlong: %s They are dropped.", report)
    return dataset.select([row for row in range(len(dataset)) if row not in dropped]), report
