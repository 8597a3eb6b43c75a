"""The native processor's own `__call__`, where nothing less says what it makes of images.

Most processors ask `ProcessorMixin._process_images` for pixels and replacement texts. Those that do not
write the ids by themselves, so they are called as a whole, with the images.
"""

import copy
from collections.abc import Mapping
from typing import Any

import PIL.Image

# What a processor returns of the text; names that end with `TYPES` are of the text, too.
TEXT = frozenset({"input_ids", "attention_mask", "labels"})
TYPES = "token_type_ids"


class _Asked(Exception):
    def __init__(self, images_kwargs: dict[str, Any]):
        self.images_kwargs = images_kwargs


def images_kwargs_asked(processor: Any, text: str) -> dict[str, Any] | None:
    """What a native `__call__` passes to `_process_images` when the caller asks for nothing.

    Args:
        processor: The native processor.
        text: Of a prompt with one image.

    Returns:
        The arguments; None if it does not call `_process_images`.
    """

    def ask(images: Any, **images_kwargs: Any) -> None:
        raise _Asked(images_kwargs)

    twin = copy.copy(processor)
    vars(twin)["_process_images"] = ask  # comes before the method of the class
    try:
        twin(images=[[PIL.Image.new("RGB", (64, 64))]], text=[text])
    except _Asked as asked:
        return asked.images_kwargs
    return None


def images_kwargs_merged(processor: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a native `__call__` hands to the image processor, of the arguments that it was given."""
    # No public method sorts the arguments, and each `__call__` starts with this one.
    merged = processor._merge_kwargs(  # noqa: SLF001
        tokenizer_init_kwargs=processor.tokenizer.init_kwargs, **kwargs
    )
    return merged["images_kwargs"]


def image_inputs(output: Mapping[str, Any]) -> dict[str, Any]:
    """What a native `__call__` returned beside the text."""
    return {name: value for name, value in output.items() if name not in TEXT and not name.endswith(TYPES)}
