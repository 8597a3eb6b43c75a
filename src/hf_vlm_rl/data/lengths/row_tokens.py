"""The tokens of one row, as trainers make them."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import DataError
from ...processing.conversation import fill_images
from ...processing.images.reference import column_images
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
            ImageError: If its images are unusable or do not fit its placeholders; likewise.
        """
        try:
            return self._with_completions(row) if self.completions else self._prompt(row)
        except ValueError as error:  # ImageError and DataError included
            # The processing class counts from 0: it saw one row.
            message = re.sub(r"^Row 0(?=\W)", f"Row {index}", str(error))
            raise type(error)(message if message.startswith("Row ") else f"Row {index}: {message}") from error

    def _prompt(self, row: Mapping[str, Any]) -> int:
        prompt, images = self._conversation(row, "prompt")
        processing = self.counter.processing
        if isinstance(prompt, str):
            return _length(processing(text=[prompt], images=[images] if images else None))
        options = _ending(prompt) | self.template
        return _length(processing.apply_chat_template([prompt], tokenize=True, return_dict=True, **options))

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
        start = self._render(prompt, **_ending(prompt))
        texts = [self._render([*prompt, *fill_images(ending, None)]) for ending in endings]
        for text in texts:
            alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(start, text, strict=False))
            start = start[: sum(1 for _ in alike)]
        return self._text(start, images) + max(self._text(text[len(start) :]) for text in texts)

    def _conversation(self, row: Mapping[str, Any], name: str) -> tuple[Any, list]:
        """A string or messages with their images in place, and these images."""
        messages = row.get(name)
        if not messages:
            raise DataError(
                f"no {name}; the columns are {sorted(row)}. Expected TRL's: prompt (a string or messages), "
                "image or images; rows with messages need completions=True."
            )
        images = [self.counter.image(image) for image in column_images(row)]
        if isinstance(messages, str):
            return messages, images
        conversation = fill_images(messages, images)
        blocks = [block for message in conversation for block in message.get("content") or []]
        blocks = [block for block in blocks if "image" in block]
        own = {id(image) for image in images}
        for block in blocks:
            if id(block["image"]) not in own:
                block["image"] = self.counter.image(block["image"])
        return conversation, [block["image"] for block in blocks]

    def _render(self, messages: list, **options: Any) -> str:
        return self.counter.processing.apply_chat_template(
            messages, tokenize=False, **options, **self.template
        )

    def _text(self, text: str, images: list | None = None) -> int:
        given = [images] if images else None
        return _length(self.counter.processing(text=[text], images=given, add_special_tokens=False))


def _ending(prompt: list) -> dict[str, bool]:
    continued = prompt[-1].get("role") == "assistant"
    return {"add_generation_prompt": not continued, "continue_final_message": continued}


def _length(batch: Mapping[str, Any]) -> int:
    return len(batch["input_ids"][0])
