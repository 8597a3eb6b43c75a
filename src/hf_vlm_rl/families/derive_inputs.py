"""What a model takes beside pixels, found by asking its native processor for small images."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
import PIL.Image
import torch
from transformers import ProcessorMixin

from ..errors import UnsupportedModelError
from .derive_parts import FEATURES

QUESTION = "What is this?"
# (width, height) in pixels: a wide image and a tall one, small and of more than one patch each.
WIDE, TALL = (112, 84), (84, 112)

# What transformers calls the method that makes positions in several dimensions.
POSITIONS = "get_rope_index"

VIDEO_FEATURES = "get_video_features"
_VIDEO_PIXELS = "pixel_values_videos"
# Arguments of a backbone's forward about videos and what comes of their sampling begin so.
_OF_VIDEOS = ("video_", "second_per_grid")

# What an image processor may call a bound of its tiles.
_TILES = {
    "min_tiles": ("min_patches", "min_tiles", "min_num_tiles"),
    "max_tiles": ("max_patches", "max_tiles", "max_image_tiles", "max_num_tiles"),
}
_OPTIONS = {"min_pixels": ("min_pixels",), "max_pixels": ("max_pixels",), **_TILES}


def derive_inputs(model: Any, processor: Any, native_inputs: bool = False) -> dict[str, Any]:
    """The fields of a `VLMFamily` that say what the backbone takes and how the processor makes it.

    The stock model's weights are not used; its native processor's results on four small prompts are compared.
    With `native_inputs` the model gets the processor's tensors as they are, so nothing is cut by image.

    Raises:
        UnsupportedModelError: If the backbone takes something that the ids and images do not determine.
    """
    backbone = model.base_model
    placeholder = image_token_id(model.config, processor)
    wide, tall, second = noise(WIDE, 0), noise(TALL, 1), noise(WIDE, 2)
    one = native(processor, [[wide]])
    both = native(processor, [[wide, tall]])
    types, prefix = _token_types(backbone, processor, both, placeholder)
    return {
        "token_types": types,
        "prefix_attention": prefix,
        "companions": () if native_inputs else _companions(backbone, one, types),
        "grids": hasattr(backbone, POSITIONS),
        "alone_differs": _alone_differs(one, native(processor, [[tall]]), both, placeholder),
        "needs_image": _needs_image(processor),
        "native_inputs": native_inputs,
        "batches_images": not native_inputs
        and _joins(backbone, one, native(processor, [[second]]), native(processor, [[wide], [second]])),
        "processor_options": _options(processor.image_processor),
        **_videos(backbone, processor, types, native_inputs),
    }


def image_token_id(config: Any, processor: Any) -> int:
    """The id of one image feature in a prompt."""
    # A few configs have it in the vision part, or leave it to the processor.
    written = getattr(config, "image_token_id", None)
    return processor.tokenizer.convert_tokens_to_ids(processor.image_token) if written is None else written


def noise(size: tuple[int, int], seed: int) -> PIL.Image.Image:
    """An RGB image of (width, height) pixels, no two of which look alike."""
    width, height = size
    return PIL.Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    )


def prompt(processor: Any, images: int, text: str = QUESTION, kind: str = "image") -> str:
    """A user's message with some images, or with videos as `kind`, as the chat template writes it."""
    if processor.chat_template is None:
        return getattr(processor, f"{kind}_token") * images + text
    content = [*({"type": kind} for _ in range(images)), {"type": "text", "text": text}]
    try:
        return processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
    except jinja2.TemplateError as error:
        raise UnsupportedModelError(
            f"The chat template of {type(processor).__name__} refuses a user's message with an image: "
            f"{error}. Expected one that writes it; correct the checkpoint's chat_template.jinja."
        ) from error


def native(processor: Any, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What the native processor makes of a prompt for each row of images."""
    texts = [prompt(processor, len(images)) for images in rows]
    images = [list(images) for images in rows]
    padding = processor.tokenizer.pad_token is not None  # the prompts of rows are of one length
    return dict(processor(images=images, text=texts, padding=padding, return_tensors="pt"))


def _token_types(
    backbone: Any, processor: Any, batch: Mapping[str, Any], placeholder: int
) -> tuple[tuple[str, ...], bool]:
    """Per-token inputs, and whether they mark the prompt instead of the images."""
    accepted = sorted(inspect.signature(backbone.forward).parameters)
    # Positions need them even where the processor makes them on request only.
    wanted = _position_arguments(backbone) | batch.keys()
    names = tuple(name for name in accepted if name.endswith("token_type_ids") and name in wanted)
    prefix = False
    for name in names:
        if name not in batch:
            continue
        types = torch.as_tensor(batch[name])
        if torch.equal(types, token_types(processor, name, batch["input_ids"])):
            continue
        if bool((types == 0).all()) and bool((batch["input_ids"] == placeholder).any()):
            prefix = True
            continue
        raise UnsupportedModelError(
            f"{type(backbone).__name__} takes {name}, of which {type(processor).__name__} writes "
            f"{sorted(set(types.flatten().tolist()))} by a rule that is not known here."
        )
    return names, prefix


def token_types(processor: Any, name: str, ids: torch.Tensor) -> torch.Tensor:
    """(B, T): what the native processor says of each token of `ids`, under the backbone's name for it."""
    # Processors have a function of their own for some names, and the general one for the others.
    create = getattr(processor, f"create_{name}", None) or processor.create_mm_token_type_ids
    if getattr(create, "__func__", None) is not ProcessorMixin.create_mm_token_type_ids:
        return torch.tensor(create(ids.tolist()), dtype=torch.long, device=ids.device)
    # The general one, without waiting for the device: training calls it in every forward.
    types = torch.zeros_like(ids, dtype=torch.long)
    kinds = (processor.image_token_ids, processor.video_token_ids, processor.audio_token_ids)
    for kind, tokens in enumerate(kinds, start=1):
        for token in tokens:
            if token is not None:
                types.masked_fill_(ids == token, kind)
    return types


def _companions(backbone: Any, batch: Mapping[str, Any], types: tuple[str, ...]) -> tuple[str, ...]:
    """Whole numbers for each image that the backbone takes for more than the image's features."""
    accepted = inspect.signature(backbone.forward).parameters.keys()
    features = inspect.signature(getattr(backbone, FEATURES)).parameters.keys()
    names = (accepted - features) | (accepted & _position_arguments(backbone))
    text = {"input_ids", "attention_mask", "labels", *types}
    return tuple(sorted(name for name in (names & batch.keys()) - text if _is_counted(batch[name])))


def _position_arguments(backbone: Any) -> frozenset[str]:
    """What the backbone makes positions of, if it does."""
    method = getattr(backbone, POSITIONS, None)
    return frozenset(inspect.signature(method).parameters) if method is not None else frozenset()


def _is_counted(value: Any) -> bool:
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point()
    return whole and value.dtype != torch.bool


def _alone_differs(
    one: Mapping[str, Any], other: Mapping[str, Any], both: Mapping[str, Any], placeholder: int
) -> bool:
    """Whether two images of a row are processed otherwise than each by itself."""
    tokens = [int((batch["input_ids"] == placeholder).sum()) for batch in (one, other, both)]
    return tokens[0] + tokens[1] != tokens[2]


def _needs_image(processor: Any) -> bool:
    try:
        processor(text=[prompt(processor, 0)], return_tensors="pt")
    except Exception:
        return True
    return False


def _joins(backbone: Any, one: Mapping[str, Any], other: Mapping[str, Any], both: Mapping[str, Any]) -> bool:
    """Whether two images of one size, in two rows, are what each gives by itself, one behind the other."""
    arguments = inspect.signature(getattr(backbone, FEATURES)).parameters
    for name in arguments.keys() & both.keys():
        alone = [one[name], other[name]]
        if not isinstance(both[name], torch.Tensor):
            continue
        if alone[0].shape[1:] != both[name].shape[1:] or not torch.equal(torch.cat(alone), both[name]):
            return False
    return True


def _videos(
    backbone: Any, processor: Any, token_types: tuple[str, ...], native_inputs: bool
) -> dict[str, Any]:
    """The fields about videos, found in the signatures of the backbone; no video is processed for them."""
    none = {"video_features": "", "video_companions": ()}
    # Processors of models without videos lack these.
    takes = getattr(processor, "video_processor", None) is not None
    if native_inputs or not takes or not isinstance(getattr(processor, "video_token", None), str):
        return none
    accepted = inspect.signature(backbone.forward).parameters.keys()
    if _VIDEO_PIXELS not in accepted:
        # Without arguments of their own, frames come as images.
        frames = not hasattr(backbone, VIDEO_FEATURES)
        return {"video_features": FEATURES, "video_companions": ()} if frames else none
    if not hasattr(backbone, VIDEO_FEATURES):
        return none
    made_of = inspect.signature(getattr(backbone, VIDEO_FEATURES)).parameters.keys()
    if _VIDEO_PIXELS not in made_of:
        return none
    names = (accepted - made_of) | (accepted & _position_arguments(backbone))
    companions = {name for name in names - set(token_types) if name.startswith(_OF_VIDEOS)}
    return {"video_features": VIDEO_FEATURES, "video_companions": tuple(sorted(companions))}


def _options(image_processor: Any) -> dict[str, str]:
    """The options of `AutoVLMPolicy.from_pretrained` that an image processor has, by its own names."""
    settings = set(vars(image_processor))
    for kind in type(image_processor).__mro__:
        # transformers declares an image processor's settings here, on some of its classes.
        settings |= set(getattr(vars(kind).get("valid_kwargs"), "__annotations__", {}))
    return {option: name for option, names in _OPTIONS.items() for name in names if name in settings}
