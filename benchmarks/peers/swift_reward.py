"""The reward of `benchmarks.trainers.spread` as a plugin of ms-swift."""

from typing import Any

from swift.rewards import ORM, orms


class Spread(ORM):
    """A reward that differs between rows."""

    def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [index % 7 / 7 for index in range(len(completions))]


orms["spread"] = Spread
