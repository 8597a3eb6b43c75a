"""The tokens of one row, as trainers make them."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import DataError
from ...processing.conversation import fill_images
from ...processing.trainer_rows import conversation, generation_prompt, naming_row, tokenize
from .stand_in import Counter


@dataclass(frozen=True)
class RowTokens:
    """Undecoded rows to numbers of tokens; the arguments are those of `prompt_lengths`."""

    counter: Counter
    completions: bool
    template: dict[str, Any]

    def __call__(self, index: int, row: Mapping[str, Any]) -> int:
        """Tokens of a row.

        Raises:
            DataError: If it lacks the columns; names it by `index`.
            ImageError: If its images are unusable or do not fit its placeholders; names it by `index`.
        """
        with naming_row(index):
            return self._with_completions(row) if self.completions else self._prompt(row)

    def _prompt(self, row: Mapping[str, Any]) -> int:
        return _length(tokenize(self.counter.processing, *self._conversation(row, "prompt"), **self.template))

    def _with_completions(self, row: Mapping[str, Any]) -> int:
        if row.get("messages") is not None:
            messages, images = self._conversation(row, "messages")
            return self._text(self._render(messages), images)
        prompt, images = self._conversation(row, "prompt")
        endings = [row[name] for name in ("completion", "chosen", "rejected") if row.get(name) is not None]
        if not endings:
            raise DataError(
                f"no completion, chosen, rejected or messages; the columns are {sorted(row)}. Expected one "
                "of them, or completions=False."
            )
        if isinstance(prompt, str):
            return self._text(prompt, images) + max(self._text(ending) for ending in endings)
        # As trainers do: what prompt and conversation begin with alike, and what is left of the conversation.
        start = self._render(prompt, **generation_prompt(prompt))
        texts = [self._render([*prompt, *fill_images(ending, None)]) for ending in endings]
        for text in texts:
            alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(start, text, strict=False))
            start = start[: sum(1 for _ in alike)]
        return self._text(start, images) + max(self._text(text[len(start) :]) for text in texts)

    def _conversation(self, row: Mapping[str, Any], column: str) -> tuple[Any, list]:
        return conversation(row, column, self.counter.image)

    def _render(self, messages: list, **options: Any) -> str:
        return self.counter.processing.apply_chat_template(
            messages, tokenize=False, **options, **self.template
        )

    def _text(self, text: str, images: list | None = None) -> int:
        images = [images] if images else None
        return _length(self.counter.processing(text=[text], images=images, add_special_tokens=False))


def _length(batch: Mapping[str, Any]) -> int:
    return len(batch["input_ids"][0])
