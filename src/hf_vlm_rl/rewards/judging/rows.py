"""Rows of a batch as a judge sees them: conversation, images, completion and right answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ColumnError, ImageError
from ...processing.images.read import load_rgb
from ..columns import IMAGES, as_texts, read_column, read_images
from ..completions import extract_answer, text_of
from .questions import Picture, document

# What a tokenizer does that has images inside its texts: a text without them, and the images.
Splitter = Callable[[str], tuple[str, list]]


@dataclass(frozen=True)
class JudgedRow:
    """One completion with what it is judged by.

    Attributes:
        conversation: The prompt: a string, or messages as {"role", "content"} of strings.
        pictures: The row's images, in order.
        completion: The text to be judged.
        reference: Right answers; () if the judge is shown none.
    """

    conversation: str | list[dict[str, str]]
    pictures: tuple[Picture, ...]
    completion: str
    reference: tuple[str, ...]

    @property
    def group(self) -> tuple:
        """Equal for completions of one prompt about the same images."""
        return document(self.shown()), tuple(each.digest for each in self.pictures)

    def shown(self, **answers: str) -> dict[str, Any]:
        """What a judge is shown of the row, with the answers that it judges."""
        reference = {"reference": list(self.reference)} if self.reference else {}
        return {"conversation": self.conversation, **answers, **reference}


class RowReader:
    """Reads a batch for one judge.

    Args:
        reward: The judge's name, for messages.
        reference: The column of right answers, or None.
        tag: Of the part that is judged, see `extract_answer`.
        split: Takes the images out of texts that carry them; None if texts carry none.
    """

    def __init__(self, reward: str, reference: str | None, tag: str | None, split: Splitter | None):
        self._reward, self._reference, self._tag, self._split = reward, reference, tag, split

    def read(self, completions: list, columns: Mapping[str, Any]) -> list[JudgedRow | None]:
        """One row per completion; None where the row has no right answer, and the judge shall see one.

        Raises:
            ColumnError: If a column is missing or holds something else, or an image cannot be read.
        """
        count = len(completions)
        prompts = read_column(columns, "prompts", count, _as_prompt, self._reward)
        references: list = [()] * count
        if self._reference is not None:
            references = read_column(columns, self._reference, count, as_texts, self._reward)
        read = [self._texts(prompt or "") for prompt in prompts]
        images = self._images(columns, prompts, [inside for _, inside in read])
        return [
            None
            if reference is None or prompt is None
            else JudgedRow(text, pictures, extract_answer(text_of(completion), self._tag), reference)
            for (text, _), prompt, pictures, completion, reference in zip(
                read, prompts, images, completions, references, strict=True
            )
        ]

    def _texts(self, prompt: str | list[dict]) -> tuple[str | list[dict[str, str]], list]:
        """A prompt without images, and the images that its texts carry."""
        images: list = []

        def text(content: Any) -> str:
            if self._split is None:
                return content
            content, own = self._split(content)
            images.extend(own)
            return content

        if isinstance(prompt, str):
            return text(prompt), images
        return [
            {
                "role": str(message.get("role")),
                "content": text(text_of([{"content": message.get("content")}])),
            }
            for message in prompt
        ], images

    def _images(
        self, columns: Mapping[str, Any], prompts: Sequence, inside: Sequence[list]
    ) -> list[tuple[Picture, ...]]:
        if self._split is not None:
            rows, place = list(inside), "the texts of the column 'prompts'"
        elif (in_columns := read_images(columns, len(prompts), self._reward)) is not None:
            rows, place = in_columns, f"the columns {[name for name in IMAGES if name in columns]}"
        else:
            rows, place = list(map(_in_blocks, prompts)), "the column 'prompts'"
            if not any(rows):
                raise ColumnError(
                    f"{self._reward} finds no image: the rows have no column images or image, and no images "
                    "in blocks of their prompts. Keep one of these columns (with None in rows without an "
                    "image); for texts of with_tickets, pass tokenizer=policy.tokenizer."
                )
        read: dict[int, Picture] = {}  # by identity: rows of a group share their images
        return [
            tuple(self._picture(image, row, place, read) for image in images)
            for row, images in enumerate(rows)
        ]

    def _picture(self, image: Any, row: int, place: str, read: dict[int, Picture]) -> Picture:
        if id(image) not in read:
            try:
                read[id(image)] = Picture(load_rgb(image))
            except ImageError as error:
                raise ColumnError(f"{self._reward}: row {row} of {place}: {error}") from error
        return read[id(image)]


def _as_prompt(value: Any) -> str | list[dict]:
    messages = isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value)
    if not isinstance(value, str) and not messages:
        raise ValueError("a string or messages")
    return value


def _in_blocks(prompt: str | list[dict] | None) -> list:
    """The images in the blocks of a prompt; blocks without one are places for images of a column."""
    contents = (
        [] if prompt is None or isinstance(prompt, str) else [message.get("content") for message in prompt]
    )
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [
        block
        for block in blocks
        if isinstance(block, Mapping)
        and block.get("type") in ("image", "image_url")
        and any(value is not None for name, value in block.items() if name not in ("type", "text"))
    ]
