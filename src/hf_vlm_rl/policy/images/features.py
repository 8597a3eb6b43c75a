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

from ..._ranks import most
from ...families.derive_parts import FEATURES
from ...processing.images.processed import ProcessedImage
from ..transfer import without_waiting
from .image_features import Features, features_of_each, joined
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
            each calls the tower as often as the rank that needs it most, on as many pieces.
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
    together = backbone.family.batches_images
    batches = _batches(missing, together)
    own = [_pieces([missing[ticket] for ticket in batch], together) for batch in batches]
    # Before the first call: the ranks must agree while none of them waits in the tower.
    needed = _most_of_each(own, device) if sharded else own if tickets else [1]
    spare: list[Features] = []
    # A frozen tower needs no graph. Without the cache, the caller's mode stays: the tower may be trained.
    with contextlib.nullcontext() if state is None else torch.no_grad():
        for number, pieces in enumerate(needed):
            batch = batches[number] if number < len(batches) else []
            images = [missing[ticket] for ticket in batch]
            images += _fill(processing, images, pieces - sum(own[number : number + 1]))
            encoded = _encode(backbone, images, options, device)
            features |= cache.store(dict(zip(batch, encoded, strict=False)), generation)
            spare += encoded[len(batch) :]
    cache.reused += len(tickets) - len(missing)
    return _outputs(tickets, features, processing), _nothing_of(spare)


def _outputs(
    tickets: Sequence[int], features: Mapping[int, Features], processing: Any
) -> dict[str, ModelOutput]:
    """The features of all tickets, by the key under which the model reads them."""
    by_key: dict[str, list[Features]] = {}
    for ticket in tickets:
        by_key.setdefault(processing.processed(ticket).output, []).append(features[ticket])
    return {key: joined(features_of_key) for key, features_of_key in by_key.items()}


def _pieces(images: Sequence[ProcessedImage], together: bool) -> int:
    """How many pieces (tiles, or whole images) a batch has; 1 where a batch is one image or one video."""
    if not together or images[0].video:
        return 1
    return sum(
        min(len(value) for value in image.inputs.values() if isinstance(value, torch.Tensor) and value.ndim)
        for image in images
    )


def _most_of_each(own: list[int], device: torch.device) -> list[int]:
    """The most pieces that any rank has in its first batch, in its second, and so on."""
    (calls,) = most([len(own)], device)
    return most(own + [0] * (calls - len(own)), device)


def _fill(processing: Any, images: Sequence[ProcessedImage], pieces: int) -> list[ProcessedImage]:
    """Images for pieces that only other ranks have: some projectors run once for each piece."""
    if not pieces or (images and images[0].video):
        return []
    blank = processing.processed(processing.image_store.put(Image.new("RGB", (BLANK, BLANK))))
    filler = images[0] if images and _shapes(images[0]) != _shapes(blank) else blank
    return [filler] * -(-pieces // _pieces([filler], together=True))


def _nothing_of(features: Sequence[Features]) -> torch.Tensor | None:
    """The 0 for the loss that makes the tower's backward run for features that no row reads."""
    sums = [tensor.float().sum() for each in features for tensor in each.tensors()]
    idle = torch.stack(sums).sum() if sums else None
    return None if idle is None or not idle.requires_grad else 0.0 * idle


def _encode(
    backbone: Any, images: list[ProcessedImage], options: Mapping[str, Any], device: torch.device
) -> list[Features]:
    """Features of images that may go through the tower together."""
    output = _forward(backbone, images, options, device)
    encoded = features_of_each(output, backbone.fields_read, [image.tokens for image in images], len(images))
    if encoded is None:
        # The output does not tell where an image ends: from here on, images go through the tower one by one.
        backbone.processing_class.state.encode_one_by_one()
        encoded = [feature for image in images for feature in _encode(backbone, [image], options, device)]
    return encoded


def _batches(images: dict[int, ProcessedImage], together: bool) -> list[list[int]]:
    """Tickets grouped by the shapes of their tensors without the first dimension, or each alone."""
    groups: dict[tuple, list[int]] = {}
    for ticket, image in images.items():
        # A video is a batch of its own.
        key = _shapes(image) if together and not image.video else ("alone", ticket)
        groups.setdefault(key, []).append(ticket)
    return list(groups.values())


def _shapes(image: ProcessedImage) -> tuple:
    """The names and shapes of an image's tensors, without the first dimension."""
    tensors = {name: value for name, value in image.inputs.items() if isinstance(value, torch.Tensor)}
    return tuple((name, tuple(value.shape[1:])) for name, value in sorted(tensors.items()))


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
            value = torch.cat(values)
            value = value.to(backbone.dtype) if value.is_floating_point() else value
            inputs[key] = without_waiting(value, device)
        else:
            inputs[key] = [item for value in values for item in value]
    return method(**inputs, return_dict=True)
