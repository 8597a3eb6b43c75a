"""Image features: vision tower and projector run once per distinct image, across forwards if frozen.

Nothing here knows a family's tensor layout. Images whose tensors agree in every dimension but the
first go through the tower together; the output is split by the number of tokens of each image.
"""

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from transformers.utils import ModelOutput

from ...families.derive_parts import FEATURES
from ...processing.images.processed import ProcessedImage
from ..ranks import most
from ..transfer import without_waiting
from .image_features import Features, features_of_each, features_of_one, joined
from .locate import CARRIERS
from .tower_state import frozen_state

# Side, in pixels, of the blank image for calls of the tower that only other ranks need.
BLANK = 112


def vision_arguments(backbone: Any) -> frozenset[str]:
    """Names of the arguments of `get_image_features`: pixels, and options of their encoding."""
    parameters = inspect.signature(backbone.get_image_features).parameters.values()
    return frozenset(
        parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ) - {"return_dict"}


def vision_options(backbone: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a forward that say how to encode pixels, where they differ from the config."""
    return {
        name: kwargs[name]
        for name in backbone.sharing.vision_arguments.difference(CARRIERS)
        if kwargs.get(name) is not None and kwargs[name] != getattr(backbone.config, name, None)
    }


def encode_images(
    backbone: Any,
    processing: Any,
    tickets: Sequence[int],
    device: torch.device,
    sharded: bool = False,
    options: Mapping[str, Any] | None = None,
) -> tuple[dict[str, ModelOutput], torch.Tensor | None]:
    """Features of `tickets` as the stock backbone expects them in `mm_encoder_outputs`.

    Args:
        backbone: The multimodal backbone.
        processing: Its processing class.
        tickets: N tickets of images and videos, repeats allowed; each distinct one is encoded once. Without
            any, the tower runs once nevertheless, for the ranks that wait for its gradients.
        device: That of the caller's ids. Not that of the weights: accelerate may keep them elsewhere.
        sharded: Whether the backbone's weights are spread over ranks. Then all ranks call this function, and
            each calls the tower as often as the rank that needs it most.
        options: Arguments of a forward that say how to encode pixels (`vision_feature_layer`, ...).

    Returns:
        A `ModelOutput` with the features of the N images in order, under "image" or, where a model has
        placeholders for videos, under "video"; empty without images. `pooler_output` is one tensor where the
        family has equal-sized pieces, else a list of N tensors.
        And a scalar 0 that the loss must depend on, so that idle calls of the tower run backward, too; None
        without such calls, or if they have no gradient.
    """
    cache = backbone.feature_cache
    distinct = list(dict.fromkeys(tickets))
    # Sharded weights are gathered and freed again, so nothing tells whether they have changed.
    options = options or {}
    how = (processing.image_settings(), repr(sorted(options.items())))
    state = frozen_state(backbone, backbone.decoder_name, how) if cache.limit_bytes and not sharded else None
    features, generation = cache.lookup(state, distinct)
    missing = {ticket: processing.processed(ticket) for ticket in distinct if ticket not in features}
    batches = _batches(missing, backbone.family.packs)
    # Before the first call: the ranks must agree while none of them waits in the tower.
    calls = most(len(batches), device) if sharded else max(len(batches), int(not tickets))
    # A frozen tower needs no graph. Without the cache, the caller's mode stays: the tower may be trained.
    with contextlib.nullcontext() if state is None else torch.no_grad():
        for batch in batches:
            images = [missing[ticket] for ticket in batch]
            encoded = _encode(backbone, images, options, device)
            features |= cache.store(dict(zip(batch, encoded, strict=True)), generation)
    cache.reused += len(tickets) - len(missing)
    idle = _idle_calls(backbone, processing, calls - len(batches), device)
    return _outputs(tickets, features, processing), idle


def _outputs(
    tickets: Sequence[int], features: Mapping[int, Features], processing: Any
) -> dict[str, ModelOutput]:
    """The features of all tickets, by the key under which the model reads them."""
    by_key: dict[str, list[Features]] = {}
    for ticket in tickets:
        by_key.setdefault(processing.processed(ticket).output, []).append(features[ticket])
    return {key: joined(features_of_key) for key, features_of_key in by_key.items()}


def _idle_calls(backbone: Any, processing: Any, calls: int, device: torch.device) -> torch.Tensor | None:
    """Run the tower on a blank image, because other ranks wait for it; returns the 0 for the loss."""
    if calls == 0:
        return None
    blank = processing.processed(processing.image_store.put(Image.new("RGB", (BLANK, BLANK))))
    outputs = [_forward(backbone, [blank], {}, device) for _ in range(calls)]
    encoded = [features_of_one(output, backbone.fields_read) for output in outputs]
    sums = [tensor.float().sum() for features in encoded for tensor in features.tensors()]
    idle = torch.stack(sums).sum()
    return 0.0 * idle if idle.requires_grad else None


def _encode(
    backbone: Any, images: list[ProcessedImage], options: Mapping[str, Any], device: torch.device
) -> list[Features]:
    """Features of images that may go through the tower together."""
    output = _forward(backbone, images, options, device)
    encoded = features_of_each(output, backbone.fields_read, [image.tokens for image in images], len(images))
    if encoded is None:
        # The output does not tell where an image ends: from here on, images go through the tower one by one.
        backbone.processing_class.state.pack_no_images()
        encoded = [feature for image in images for feature in _encode(backbone, [image], options, device)]
    return encoded


def _batches(images: dict[int, ProcessedImage], together: bool) -> list[list[int]]:
    """Tickets grouped by the shapes of their tensors without the first dimension, or each alone."""
    groups: dict[tuple, list[int]] = {}
    for ticket, image in images.items():
        if not together or image.video:  # a video is a batch of its own
            groups["alone", ticket] = [ticket]
            continue
        shapes = tuple(
            (key, tuple(value.shape[1:]))
            for key, value in sorted(image.inputs.items())
            if isinstance(value, torch.Tensor)
        )
        groups.setdefault(shapes, []).append(ticket)
    return list(groups.values())


def _forward(
    backbone: Any, images: list[ProcessedImage], options: Mapping[str, Any], device: torch.device
) -> ModelOutput:
    method = getattr(backbone, backbone.family.video_features if images[0].video else FEATURES)
    accepted = inspect.signature(method).parameters
    inputs: dict[str, Any] = {name: value for name, value in options.items() if name in accepted}
    for key in images[0].inputs:
        if key not in accepted:
            continue
        values = [image.inputs[key] for image in images]
        if isinstance(values[0], torch.Tensor):
            value = without_waiting(torch.cat(values), device)
            inputs[key] = value.to(backbone.dtype) if value.is_floating_point() else value
        else:
            inputs[key] = [item for value in values for item in value]
    return method(**inputs, return_dict=True)
