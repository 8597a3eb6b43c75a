"""Calls of the native processor's `__call__`, for what no smaller method of it tells.

Most processors get pixels and replacement texts from `ProcessorMixin._process_images`. The others write ids
by rules of their own, so we call them as a whole, with the images.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import PIL.Image
import torch
from transformers import BatchEncoding

from ..errors import ImageError, UnsupportedModelError

# Outputs of a processor that describe the text; so do all whose name ends with `TYPES`.
TEXT = frozenset({"input_ids", "attention_mask", "labels"})
TYPES = "token_type_ids"


class _Asked(Exception):
    def __init__(self, kwargs: dict[str, Any]):
        self.kwargs = kwargs


def kwargs_asked(native: Any, method: str, call: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Keyword arguments that a native processor passes to `_process_images` or `_process_videos` by itself.

    `call` calls a processor with an image or a video, and sets no argument. None if the processor does not
    call the method.
    """

    def ask(media: Any, **kwargs: Any) -> None:
        raise _Asked(kwargs)

    twin = copy.copy(native)
    vars(twin)[method] = ask  # hides the method of the class
    try:
        call(twin)
    except _Asked as asked:
        return asked.kwargs
    return None


def images_kwargs_asked(native: Any, text: str) -> dict[str, Any] | None:
    """As `kwargs_asked` of `_process_images`, for a rendered prompt with one image."""
    blank = PIL.Image.new("RGB", (64, 64))
    return kwargs_asked(native, "_process_images", lambda twin: twin(images=[[blank]], text=[text]))


def image_inputs(output: Mapping[str, Any]) -> dict[str, Any]:
    """Those outputs of a native `__call__` that describe images or videos, not the text."""
    return {name: value for name, value in output.items() if name not in TEXT and not name.endswith(TYPES)}


def call_on_ids(
    processing: Any, tickets: Sequence[Sequence[int]], input_ids: list[list[int]], mask: list[list[int]]
) -> dict[str, Any]:
    """Run the native `__call__` on the images of B rows whose text is tokenized already.

    `tickets` are those of each row's images, in the order of their placeholders; `input_ids` (B, T) are
    padded, with clean placeholders, and `mask` (B, T) is 0 at padding. Gives its outputs without ids and
    mask: tensors of all images, padded as the processor pads them, and token types.

    Raises:
        ImageError: If the images have different options, or the processor refuses them in one batch.
        UnsupportedModelError: If the processor changes the ids.
    """
    state, native = processing.state, processing.native()
    images = [[state.store.get(ticket) for ticket in row] for row in tickets]
    # `alone` says whether an image was its row's only one; the native call sees that in `images`.
    options = [dict(image.options) for row in images for image in row]
    options = [{name: value for name, value in each.items() if name != "alone"} for each in options]
    if any(each != options[0] for each in options):
        raise ImageError(
            f"The images of a batch were encoded with different options: {options}. The native processor "
            "takes one set for all; encode all rows with the same images_kwargs."
        )
    native.tokenizer = _Tokenized(native.tokenizer, input_ids, mask)
    texts = [state.one_image.replace(state.placeholder, state.placeholder * len(row)) for row in tickets]
    try:
        output = native(
            images=[[image.image for image in row] for row in images],
            text=texts,
            images_kwargs=options[0],
            padding=True,
            return_tensors="pt",
        )
    except (IndexError, TypeError, ValueError) as error:
        raise ImageError(
            f"{type(native).__name__} refuses a batch whose rows have {[len(row) for row in images]} images: "
            f"{error}. Put rows with and without images into different batches."
        ) from error
    if output["input_ids"].tolist() != input_ids:
        raise UnsupportedModelError(
            f"{type(native).__name__} changes ids after its tokenizer made them. Expected a processor that "
            "adds its tokens to the text."
        )
    _check_rows(type(native).__name__, images, image_inputs(output))
    return {name: value for name, value in output.items() if name not in TEXT}


def _check_rows(kind: str, images: Sequence[Sequence[Any]], inputs: Mapping[str, Any]) -> None:
    """Refuse outputs if some have an entry for each row, and others only for each row with images."""
    with_images = sum(bool(row) for row in images)
    lengths = {len(value) for value in inputs.values() if isinstance(value, torch.Tensor)}
    # With as many images as rows, a length does not tell entries for images from entries for rows.
    if sum(map(len, images)) == len(images):
        return
    if lengths == {len(images), with_images} and with_images < len(images):
        raise ImageError(
            f"{kind} makes tensors of {len(images)} and of {with_images} entries for a batch of "
            f"{len(images)} rows, {with_images} of which have images; its model takes only batches in which "
            "all rows have images, or none has. Put them into different batches."
        )


class _Tokenized:
    """Stands in for a tokenizer: for the B texts of the batch, it returns ids that exist already."""

    def __init__(self, tokenizer: Any, input_ids: list[list[int]], mask: list[list[int]]):
        self._tokenizer = tokenizer
        self._rows = {"input_ids": input_ids, "attention_mask": mask}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __call__(self, text: Any, return_tensors: str | None = None, **kwargs: Any) -> BatchEncoding:
        if isinstance(text, str) or len(text) != len(self._rows["input_ids"]):
            return self._tokenizer(text, return_tensors=return_tensors, **kwargs)
        # Some processors count an image's tokens by where tokens lie in the text.
        encodings = self._tokenizer(list(text)).encodings
        return BatchEncoding(copy.deepcopy(self._rows), encodings, tensor_type=return_tensors)
