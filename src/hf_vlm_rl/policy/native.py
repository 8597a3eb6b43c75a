"""Native pixels, as the stock processor makes them: equal images are recognised by their content.

A trainer that was given the policy alone loads the stock processor. Its pixels are encoded once for each
distinct image and its prompts are shared, as with tickets.

Shapes: N images over all rows, in row order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.utils import logging

from ..processing.images.processed import ProcessedImage
from .features import encode_distinct, vision_options
from .ranks import is_sharded
from .row_images import NativeImage, RowImages
from .sharing.switch import KNOWN

logger = logging.get_logger(__name__)

# Tensors that a caller may pass beside images and that do not concern them.
BESIDE = KNOWN | {"cache_position", "inputs_embeds", "labels"}

UNKNOWN_LAYOUT = (
    "{model} got native pixels in a layout that is not known here ({why}): images are encoded for every row, "
    "and prompts are not shared. The results are right. Pass processing_class=policy.processing_class to the "
    "trainer."
)


def read_native(backbone: Any, kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[RowImages] | None]:
    """Recognise the images among a forward's native pixels and encode each distinct one.

    Args:
        backbone: A policy's multimodal backbone.
        kwargs: The arguments of its forward.

    Returns:
        The arguments without pixels, and the images of each row; the arguments as they are and None where
        there are no pixels, sharing is off, or the images cannot be told apart.
    """
    pixel_values, input_ids = kwargs.get("pixel_values"), kwargs.get("input_ids")
    if pixel_values is None or input_ids is None or backbone.sharing.mode is False or is_sharded(backbone):
        return kwargs, None
    arguments = backbone.sharing.vision_arguments
    tensors = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
    vision = {name: value for name, value in tensors.items() if name in arguments}
    others = sorted(tensors.keys() - vision.keys() - BESIDE)
    cut = None if others or not backbone.family.packs else _cut(vision)
    if cut is None:
        return _unknown(
            backbone, kwargs, f"beside {others[0]}" if others else "tensors that do not fit together"
        )
    # Some families pad pixels to the most images of a row: an entry of a row without images is blank.
    padded = pixel_values.ndim > 4
    images = [None if padded and not image["pixel_values"].any() else image for image in cut]
    keys = [None if image is None else _key(image) for image in images]
    distinct = {
        key: ProcessedImage(image, "", 0)
        for key, image in zip(keys, images, strict=True)
        if key is not None and image is not None
    }
    features = encode_distinct(backbone, distinct, vision_options(backbone, kwargs), alone=padded)
    if features is None:
        return _unknown(backbone, kwargs, "features that cannot be told apart by image")
    native = {key: NativeImage(features[key], image.inputs) for key, image in distinct.items()}
    counts = (input_ids == backbone.processing_class.state.placeholder_id).sum(dim=1).tolist()
    counted = {key: image.features.tokens for key, image in native.items()}
    tokens = {key: count for key, count in counted.items() if count is not None}
    dealt = _deal(keys, [0 if key is None else tokens[key] for key in keys], counts)
    if dealt is None:
        return kwargs, None  # the stock model says what is wrong with it
    backbone.feature_cache.reused += len(keys) - len(distinct)
    rows = [RowImages(tuple(row), lengths=tuple(tokens[key] for key in row), native=native) for row in dealt]
    return {name: value for name, value in kwargs.items() if name not in vision}, rows


def _unknown(backbone: Any, kwargs: dict[str, Any], why: str) -> tuple[dict[str, Any], None]:
    logger.warning_once(UNKNOWN_LAYOUT.format(model=type(backbone).__name__, why=why))
    return kwargs, None


def _cut(vision: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]] | None:
    """Each image's part of the native tensors; None if they do not agree on the number of images.

    Either every tensor has one entry an image, or `image_grid_thw` says how many patches an image has.
    """
    grids = vision.get("image_grid_thw")
    patches = None if grids is None or vision["pixel_values"].ndim != 2 else grids.prod(dim=1).tolist()
    number = len(vision["pixel_values"]) if patches is None else len(patches)
    if patches is not None and sum(patches) != len(vision["pixel_values"]):
        return None
    parts: dict[str, Sequence[torch.Tensor]] = {}
    for name, value in vision.items():
        if name == "pixel_values" and patches is not None:
            parts[name] = value.split(patches)
        elif value.ndim and len(value) == number:
            parts[name] = value.split(1)
        else:
            return None
    return [{name: part[index] for name, part in parts.items()} for index in range(number)]


def _key(image: Mapping[str, torch.Tensor]) -> int:
    """A hash of an image's tensors: equal contents have equal keys."""
    parts = sorted(image.items())
    return hash(tuple((name, tuple(value.shape), str(value.dtype), _content(value)) for name, value in parts))


def _content(tensor: torch.Tensor) -> int:
    """A 64-bit multilinear hash of a tensor's bytes, made on its device."""
    content = tensor.detach().contiguous().view(-1).view(torch.uint8)
    content = torch.nn.functional.pad(content, (0, -len(content) % 4)).view(torch.int32).long()
    # Multipliers that no input was made for, the same in every process; sums wrap around at 64 bits.
    multipliers = torch.arange(1, len(content) + 1, device=content.device) * -0x61C8864680B583EB
    multipliers = (multipliers ^ (multipliers >> 29)) * 0x5851F42D4C957F2D | 1
    return int((content * multipliers).sum())


def _deal(keys: list[int | None], tokens: list[int], counts: list[int]) -> list[list[int]] | None:
    """The images of each row, by the rows' numbers of placeholders; None if they do not fit."""
    waiting = list(zip(keys, tokens, strict=True))
    dealt = []
    for count in counts:
        row: list[int] = []
        while waiting and (count > 0 or waiting[0][0] is None):
            key, length = waiting.pop(0)
            count -= length
            if key is None:
                break
            row.append(key)
        if count != 0:
            return None
        dealt.append(row)
    return None if waiting else dealt
