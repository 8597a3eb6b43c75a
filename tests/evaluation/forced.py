"""A text that a tiny model is made to write, through `generate`'s own `prefix_allowed_tokens_fn`."""

from typing import Any


class Says:
    """Allows one token at each place: the text's, then the end of the turn.

    Args:
        tokenizer: Of the policy.
        text: What is written, whatever the model's weights.
    """

    def __init__(self, tokenizer: Any, text: str):
        self.ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        self.prompt = None

    def __call__(self, row: int, ids: Any) -> list[int]:
        self.prompt = len(ids) if self.prompt is None else self.prompt
        return [self.ids[min(len(ids) - self.prompt, len(self.ids) - 1)]]
