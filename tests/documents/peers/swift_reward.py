"""The reward of `alike` as a plugin of ms-swift."""

from typing import Any

from swift.rewards import ORM, orms

from tests.documents.peers.alike import reward


class IsRight(ORM):
    """A number that depends on a completion's text."""

    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        return [reward(text) for text in completions]


orms["is_right"] = IsRight
