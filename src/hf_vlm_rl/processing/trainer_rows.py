"""From a dataset's row in TRL's columns to what the model and the reward functions get."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jinja2

from ..errors import DataError, ImageError
from .conversation import fill_images
from .images.reference import column_images

MEDIA = {"image", "video"}
COLUMNS = ("prompt", "completion", "completion_ids")


@dataclass(frozen=True)
class Row:
    """A dataset's row, before its completions are sampled.

    Attributes:
        index: Its index in the dataset.
        prompt: A string, or messages with the images in their blocks.
        columns: The columns that reward functions get besides prompt and completion.
    """

    index: int
    prompt: Any
    columns: dict[str, Any]

    def completion(self, text: str) -> Any:
        """A completion in the form of the prompt: a string, or messages."""
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
        tickets: The tickets of its N images, as `beside_ids.encode_tickets` makes them; None without images.
    """

    input_ids: list[int]
    tickets: Any

    @property
    def row_id(self) -> str:
        """A hash of ids and images."""
        tickets = [] if self.tickets is None else self.tickets.tolist()
        return hashlib.blake2b(repr((self.input_ids, tickets)).encode(), digest_size=8).hexdigest()


def read(index: int, row: Mapping[str, Any]) -> Row:
    """Read a dataset's row.

    Raises:
        DataError: If it has no prompt; names the row.
        ImageError: If images and image blocks differ in number; names the row.
    """
    with naming_row(index):
        prompt, _ = conversation(row)
    return Row(index, prompt, {name: value for name, value in row.items() if name not in COLUMNS})


def encode(processing: Any, index: int, row: Mapping[str, Any]) -> Encoded:
    """Tokenize a dataset's row with the processing class.

    Raises:
        DataError: If it cannot be encoded; names the row.
        ImageError: If its images are unusable or do not fit its placeholders; names the row.
    """
    with naming_row(index):
        batch = tokenize(processing, *conversation(row))
    return Encoded(list(batch["input_ids"][0]), batch.get("pixel_values"))


@contextmanager
def naming_row(index: int) -> Iterator[None]:
    """A context whose errors name the row by its index in the dataset."""
    try:
        yield
    except ImageError as error:  # the processing class got this row alone and calls it 0
        raise error.at_row(index) from error
    except jinja2.TemplateError as error:
        raise DataError(f"Row {index}: the chat template refuses its messages: {error}") from error
    except ValueError as error:
        raise DataError(f"Row {index}: {error}") from error


def conversation(
    row: Mapping[str, Any], column: str = "prompt", read_image: Callable[[Any], Any] = lambda image: image
) -> tuple[Any, list]:
    """The text or messages of a row in TRL's columns, with images in place; and images and videos in order.

    `read_image` is applied to each image, also to those inside messages.

    Raises:
        DataError: If the column is not there or empty.
        ImageError: If images and image blocks differ in number.
    """
    if not isinstance(row, Mapping):
        raise DataError(
            f"a {type(row).__name__}. Expected a dict of TRL's columns, such as prompt and image."
        )
    messages = row.get(column)
    if not messages:
        raise DataError(
            f"no {column}; its columns are {sorted(row)}. Expected TRL's: prompt (a string or messages), "
            "image or images, and what the rewards read; rows of messages need completions=True."
        )
    if isinstance(messages, str):
        return messages, [read_image(image) for image in column_images(row)]
    messages = fill_images(messages, column_images(row))
    content = [block for message in messages for block in message.get("content") or []]
    for block in content:
        if "image" in block:
            block["image"] = read_image(block["image"])
    return messages, [block.get("image", block.get("video")) for block in content if block.keys() & MEDIA]


def tokenize(processing: Any, prompt: Any, images: list, **template: Any) -> Mapping[str, Any]:
    """Tokenize a prompt from `conversation` as a batch of one row, called as TRL's trainers call it.

    The prompt may end with the beginning of an answer; `images` are those of a prompt that is a string.
    """
    if isinstance(prompt, str):
        return processing(text=[prompt], images=[images] if images else None)
    options = generation_prompt(prompt) | template
    return processing.apply_chat_template([prompt], tokenize=True, return_dict=True, **options)


def generation_prompt(messages: list[dict]) -> dict[str, bool]:
    """The chat template's arguments for messages that are to be answered, or whose answer goes on."""
    answered = messages[-1].get("role") == "assistant"
    return {"add_generation_prompt": not answered, "continue_final_message": answered}


def _words(message: Mapping[str, Any]) -> str:
    return " ".join(block["text"] for block in message.get("content") or [] if block.get("text"))
