"""Evaluated rows that are kept to look at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluatedRow:
    """What is kept of a row for people to look at.

    Attributes:
        index: Of the row in the dataset.
        prompt: Its text.
        completions: Texts, as many as generations.
        rewards: By name, one value per completion.
        images: Thumbnails, as `data:` URLs.
    """

    index: int
    prompt: str
    completions: tuple[str, ...]
    rewards: dict[str, tuple[float | None, ...]]
    images: tuple[str, ...] = ()


def read_row(stored: dict) -> EvaluatedRow:
    """A row from what `dataclasses.asdict` made of it."""
    rewards = {name: tuple(values) for name, values in stored["rewards"].items()}
    texts = {"completions": tuple(stored["completions"]), "images": tuple(stored["images"])}
    return EvaluatedRow(**stored | texts | {"rewards": rewards})
