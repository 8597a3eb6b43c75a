"""Rows of a dataset in TRL's columns, as what the model and the reward functions get."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .conversation import fill_images
from .images.reference import column_images

COLUMNS = ("prompt", "completion", "completion_ids")


@dataclass(frozen=True)
class Row:
    """A row that waits for its completions.

    Attributes:
        index: In the dataset.
        prompt: A string, or messages with the images in their blocks.
        columns: What reward functions get besides.
    """

    index: int
    prompt: Any
    columns: dict[str, Any]

    def said(self, text: str) -> Any:
        """A completion in the form of the prompt."""
        return text if isinstance(self.prompt, str) else [{"role": "assistant", "content": text}]

    @property
    def text(self) -> str:
        """The prompt for people: who says what, without images."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(f"{message.get('role')}: {_words(message)}" for message in self.prompt)


@dataclass(frozen=True)
class Encoded:
    """A prompt as the model takes it.

    Attributes:
        input_ids: L ids.
        tickets: (N, 1 or 2) of its N images; None without images.
    """

    input_ids: list[int]
    tickets: Any

    @property
    def row_id(self) -> str:
        """A hash of ids and images."""
        tickets = [] if self.tickets is None else self.tickets.tolist()
        return hashlib.blake2b(repr((self.input_ids, tickets)).encode(), digest_size=8).hexdigest()


def read(index: int, row: Mapping[str, Any]) -> Row:
    """A dataset's row.

    Raises:
        ValueError: If it has no prompt.
        ImageError: If images and image blocks differ in number.
    """
    prompt = row.get("prompt")
    if not prompt:
        raise ValueError(
            f"Row {index} has no prompt; its columns are {sorted(row)}. Expected TRL's: prompt (a string or "
            "messages), image or images, and what the reward functions read."
        )
    if not isinstance(prompt, str):
        prompt = fill_images(prompt, column_images(row))
    return Row(index, prompt, {name: value for name, value in row.items() if name not in COLUMNS})


def encode(processing: Any, index: int, row: Mapping[str, Any]) -> Encoded:
    """A dataset's row through the processing class.

    Raises:
        ValueError: If it cannot be encoded; names the row.
    """
    try:
        prompt = read(index, row).prompt
        if isinstance(prompt, str):
            images = column_images(row)
            batch = processing(text=[prompt], images=[images] if images else None)
        else:
            continued = prompt[-1].get("role") == "assistant"
            batch = processing.apply_chat_template(
                [prompt],
                tokenize=True,
                return_dict=True,
                add_generation_prompt=not continued,
                continue_final_message=continued,
            )
    except ValueError as error:  # ImageError included
        # The processing class counts from 0: it saw one row.
        message = re.sub(r"\bRow 0\b(, image|:)", rf"Row {index}\1", str(error))
        at = "" if message.startswith(f"Row {index}") else f"Row {index}: "
        raise type(error)(at + message) from error
    return Encoded(list(batch["input_ids"][0]), batch.get("pixel_values"))


def _words(message: Mapping[str, Any]) -> str:
    return " ".join(block["text"] for block in message.get("content") or [] if block.get("text"))
