"""Image features: vision tower and projector run once per distinct image, across forwards if frozen.

Nothing here knows a family's tensor layout. Images whose tensors agree in every dimension but the
first go through the tower together; the result is cut by what each image put in.
"""

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from transformers.utils import ModelOutput

from ..families.derive_parts import FEATURES
from ..processing.images.processed import ProcessedImage
from .image_features import Features, features_of_each, features_of_one, joined
from .locate import CARRIERS
from .ranks import most
from .tower_state import frozen_state
from .transfer import without_waiting

# Side of the image for calls whose result nobody wants, in pixels.
BLANK = 112


def vision_arguments(backbone: Any) -> frozenset[str]:
    """Names of what the backbone's image features are made of: pixels, and how to look at them."""
    parameters = inspect.signature(backbone.get_image_features).parameters.values()
    return frozenset(
        parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ) - {"return_dict"}


def vision_options(backbone: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a forward that say how to make features of pixels, where the config says otherwise."""
    return {
        name: kwargs[name]
        for name in backbone.sharing.vision_arguments.difference(CARRIERS)
        if kwargs.get(name) is not None and kwargs[name] != getattr(backbone.config, name, None)
    }


def encode_images(
    backbone: Any,
    processing: Any,
    tickets: Sequence[int],
    sharded: bool = False,
    options: Mapping[str, Any] | None = None,
) -> tuple[dict[str, ModelOutput], torch.Tensor | None]:
    """Features of `tickets` as the stock backbone expects them in `mm_encoder_outputs`.

    Args:
        backbone: The multimodal backbone, on its device.
        processing: Its processing class.
        tickets: N tickets of images and videos, repeats allowed; each distinct one is encoded once. Without
            any, the tower runs once nevertheless, for the ranks that wait for its gradients.
        sharded: The backbone's weights are spread over ranks, which all are here: call the tower as
            often as the rank that needs it most.
        options: Arguments of the backbone's forward that say how to make features of pixels
            (`vision_feature_layer`, ...).

    Returns:
        A `ModelOutput` with the features of the N images in order, under "image" or, where a model has
        placeholders for videos, under "video"; empty without images. `pooler_output` is one tensor where the
        family has equal-sized pieces, else a list of N tensors.
        And a scalar 0 that the loss must depend on, so that idle calls run backward too; None if there
        were none, or nothing to train in them.
    """
    cache = backbone.feature_cache
    distinct = list(dict.fromkeys(tickets))
    # Sharded weights come and go, so nothing tells whether they have changed.
    options = options or {}
    how = (processing.image_settings(), repr(sorted(options.items())))
    state = frozen_state(backbone, backbone.decoder_name, how) if cache.limit_bytes and not sharded else None
    features, generation = cache.lookup(state, distinct)
    missing = {ticket: processing.processed(ticket) for ticket in distinct if ticket not in features}
    batches = _batches(missing, backbone.family.packs)
    # Before the first call: the ranks must agree while none of them waits in the tower.
    calls = most(len(batches), backbone.device) if sharded else max(len(batches), int(not tickets))
    # A frozen tower needs no graph. Without the cache, follow the caller: the tower may be trained.
    with contextlib.nullcontext() if state is None else torch.no_grad():
        for batch in batches:
            images = [missing[ticket] for ticket in batch]
            made = _encode(backbone, images, options)
            features |= cache.store(dict(zip(batch, made, strict=True)), generation)
    cache.reused += len(tickets) - len(missing)
    idle = _idle_calls(backbone, processing, calls - len(batches))
    return _outputs(tickets, features, processing), idle


def _outputs(
    tickets: Sequence[int], features: Mapping[int, Features], processing: Any
) -> dict[str, ModelOutput]:
    """The features of all tickets, by the key under which the model reads them."""
    by_key: dict[str, list[Features]] = {}
    for ticket in tickets:
        by_key.setdefault(processing.processed(ticket).output, []).append(features[ticket])
    return {key: joined(made) for key, made in by_key.items()}


def encode_distinct(
    backbone: Any, images: Mapping[int, ProcessedImage], options: Mapping[str, Any], alone: bool
) -> dict[int, Features] | None:
    """Features of images that came as pixels.

    Args:
        backbone: The multimodal backbone, on its device.
        images: Distinct images, by a number that stands for their content.
        options: As for `encode_images`.
        alone: One image a call: what the tower returns does not tell where an image ends.

    Returns:
        The features by the same numbers; None if the tower returned another number of pieces than images.
    """
    cache = backbone.feature_cache
    how = ("native", repr(sorted(options.items())))
    state = frozen_state(backbone, backbone.decoder_name, how) if cache.limit_bytes else None
    features, generation = cache.lookup(state, list(images))
    missing = {key: image for key, image in images.items() if key not in features}
    batches = _batches(missing, backbone.family.packs and not alone)
    with contextlib.nullcontext() if state is None else torch.no_grad():
        for batch in batches:
            output = _forward(backbone, [missing[key] for key in batch], options)
            made = features_of_each(output, backbone.fields_read, None, len(batch))
            if made is None or any(image.tokens is None for image in made):
                return None
            features |= cache.store(dict(zip(batch, made, strict=True)), generation)
    return features


def _idle_calls(backbone: Any, processing: Any, calls: int) -> torch.Tensor | None:
    """Run the tower on a blank image, for the sake of other ranks."""
    if calls == 0:
        return None
    blank = processing.processed(processing.image_store.put(Image.new("RGB", (BLANK, BLANK))))
    made = [features_of_one(_forward(backbone, [blank], {}), backbone.fields_read) for _ in range(calls)]
    sums = [tensor.float().sum() for features in made for tensor in features.tensors()]
    idle = torch.stack(sums).sum()
    return 0.0 * idle if idle.requires_grad else None


def _encode(backbone: Any, images: list[ProcessedImage], options: Mapping[str, Any]) -> list[Features]:
    """Features of images that may go through the tower together."""
    output = _forward(backbone, images, options)
    made = features_of_each(output, backbone.fields_read, [image.tokens for image in images], len(images))
    if made is None:
        # The output does not tell where an image ends: from here on, one by one.
        backbone.processing_class.state.pack_no_images()
        made = [feature for image in images for feature in _encode(backbone, [image], options)]
    return made


def _batches(images: dict[int, ProcessedImage], packs: bool) -> list[list[int]]:
    """Tickets grouped by the shapes of their tensors, first dimension aside; each alone if none may be."""
    groups: dict[tuple, list[int]] = {}
    for ticket, image in images.items():
        if not packs or image.video:  # a video is a batch of its own
            groups["alone", ticket] = [ticket]
            continue
        shapes = tuple(
            (key, tuple(value.shape[1:]))
            for key, value in sorted(image.inputs.items())
            if isinstance(value, torch.Tensor)
        )
        groups.setdefault(shapes, []).append(ticket)
    return list(groups.values())


def _forward(backbone: Any, images: list[ProcessedImage], options: Mapping[str, Any]) -> ModelOutput:
    method = getattr(backbone, backbone.family.video_features if images[0].video else FEATURES)
    accepted = inspect.signature(method).parameters
    inputs: dict[str, Any] = {name: value for name, value in options.items() if name in accepted}
    for key in images[0].inputs:
        if key not in accepted:
            continue
        values = [image.inputs[key] for image in images]
        if isinstance(values[0], torch.Tensor):
            value = without_waiting(torch.cat(values), backbone.device)
            inputs[key] = value.to(backbone.dtype) if value.is_floating_point() else value
        else:
            inputs[key] = [item for value in values for item in value]
    return method(**inputs, return_dict=True)
