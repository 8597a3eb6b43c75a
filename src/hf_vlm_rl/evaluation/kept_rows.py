"""Evaluated rows that are kept to look at."""

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..processing.stored_rows import IMAGE_COLUMNS

LONGEST = 2000  # characters of a column that are kept


@dataclass(frozen=True)
class EvaluatedRow:
    """What is kept of a row for people to look at: texts and thumbnails, where training has ids and tickets.

    Attributes:
        index: The row's place in the dataset, from 0.
        prompt: The prompt's text.
        completions: Their texts, as many as generations.
        rewards: Name of a reward to one value per completion; None where it abstained.
        images: Thumbnails, as `data:` URLs.
        reference: Name to text of the row's other columns: what rewards compare completions with.
    """

    index: int
    prompt: str
    completions: tuple[str, ...]
    rewards: dict[str, tuple[float | None, ...]]
    images: tuple[str, ...] = ()
    reference: dict[str, str] = field(default_factory=dict)


def reference_texts(columns: Mapping[str, Any]) -> dict[str, str]:
    """A row's columns as text, those aside that are images, None or have no JSON."""
    as_list = operator.methodcaller("tolist")  # arrays and tensors; others raise AttributeError
    texts = {}
    for name, value in columns.items():
        if name in IMAGE_COLUMNS or value is None:
            continue
        try:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=as_list)
        except (AttributeError, TypeError, ValueError):
            continue
        texts[name] = text if len(text) <= LONGEST else text[:LONGEST] + " ..."
    return texts


def read_row(stored: dict) -> EvaluatedRow:
    """A row from what `dataclasses.asdict` made of it."""
    rewards = {name: tuple(values) for name, values in stored["rewards"].items()}
    texts = {"completions": tuple(stored["completions"]), "images": tuple(stored["images"])}
    return EvaluatedRow(**stored | texts | {"rewards": rewards})
