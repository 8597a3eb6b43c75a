"""Options of a single image, as the field's data has them: `max_pixels`, `resized_height`, `max_tiles`, ...

They stand beside an image in its block, or in a dict with it, which every trainer passes on as one object:

    {"type": "image", "image": "chart.png", "max_pixels": 401408}
    {"path": "chart.png", "max_pixels": 401408}

Trainers that render a conversation to text and pass its images separately would lose the options in its
blocks. So `marked` writes them into the text, behind the image's placeholder, and `unmarked` takes them out.
Such a mark ends with a hash of its options, so that no text of a user or of a model is taken for one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import PIL.Image

from ...errors import ImageError
from ...families import VLMFamily
from .bounds import OPTIONS as BOUNDED
from .bounds import check_bounds, image_options, with_options
from .disk import content_hash
from .disk import name as hexadecimal
from .reference import PAYLOADS, is_stored, payload

# Keys of a message's block, or of an image as `datasets` stores it, that are no options.
# `detail` asks OpenAI's servers to look closer; to a model that runs here it says nothing.
_OWN = frozenset({"type", "text", "bytes", "detail", *PAYLOADS})
# InternVL's own names.
_ALIASES = {"min_num": "min_tiles", "max_num": "max_tiles"}
_RESIZED = ("resized_height", "resized_width")
# `process_vision_info` would resize images of fewer or more tokens to another size than the options name.
_LEAST_TOKENS, _MOST_TOKENS = 4, 16384
# Our key in `image.info`, where PIL keeps what programs note of an image.
_KEY = "hf_vlm_rl_options"
_MARK = "\u2063"
_MARKED = re.compile(f"{_MARK}({{[^{_MARK}]*}})([0-9a-f]{{16}}){_MARK}")


def options_of(image: Any) -> dict[str, Any]:
    """The options in an image's dict or block, also one level deeper (`image_url`).

    Raises:
        ImageError: If the two levels have different values of one option.
    """
    if not isinstance(image, Mapping):
        return {}
    options = {name: value for name, value in image.items() if name not in _OWN and value is not None}
    for name in PAYLOADS:
        for inner, value in options_of(image.get(name)).items():
            if options.setdefault(inner, value) != value:
                raise ImageError(f"Got {inner}={options[inner]!r} and {inner}={value!r} for one image.")
    return options


def with_image_options(image: Any, options: Mapping[str, Any]) -> Any:
    """An image and its options as one object; the image itself if there are none.

    Raises:
        ImageError: If the image has another value of one of these options already.
    """
    if not options:
        return image
    own = options_of(image)
    changed = sorted(name for name in own.keys() & options.keys() if own[name] != options[name])
    if changed:
        raise ImageError(f"Got two values of {', '.join(changed)} for one image. Give one.")
    if isinstance(image, Mapping):  # as `datasets` stores it, or with options
        stored = {name: value for name, value in image.items() if name in ("bytes", "path")}
        image = stored if is_stored(image) else payload(image)
    return {"image": image, **own, **options}


def note_options(image: PIL.Image.Image, options: Mapping[str, Any]) -> PIL.Image.Image:
    """Write options into the `info` of an image that nobody else holds; replaces older ones."""
    image.info = {name: value for name, value in image.info.items() if name != _KEY}
    if options:
        image.info[_KEY] = dict(options)
    return image


def noted_options(image: Any) -> dict[str, Any]:
    """The options that `note_options` wrote."""
    return image.info.get(_KEY, {})


def allowed_options(family: VLMFamily, image_processor: Any) -> tuple[str, ...]:
    """Names of the options that images of a family may have."""
    bounds = [name for name in BOUNDED if name in family.processor_options]
    aliases = [alias for alias, name in _ALIASES.items() if name in bounds]
    resized = _RESIZED if _factor(family, image_processor) else ()
    return (*bounds, *aliases, *resized)


def check_options(options: Mapping[str, Any], family: VLMFamily, image_processor: Any) -> None:
    """Refuse options that a family does not have, and values that they cannot have.

    Raises:
        ImageError: If one is not known, or not of the family, or contradicts another.
    """
    allowed = allowed_options(family, image_processor)
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ImageError(
            f"got {', '.join(map(repr, unknown))} beside an image. An image of a {family.model_type} model "
            f"takes {', '.join(allowed) or 'no options'}; remove the others. "
            "The image itself stands under 'image', 'path', 'url' or 'bytes'."
        )
    resized = [name for name in _RESIZED if name in options]
    if resized and (len(resized) == 1 or len(options) > 2):
        raise ImageError(
            f"got {dict(options)} for an image. Expected resized_height and resized_width together, and no "
            "other option beside them."
        )
    for name in resized:
        if not isinstance(options[name], int) or isinstance(options[name], bool) or options[name] < 1:
            raise ImageError(f"got {name}={options[name]!r}. Expected a whole number of pixels above 0.")
    if resized and (factor := _factor(family, image_processor)):
        height, width = _resized(options, factor)
        tokens = height * width // factor**2
        if not _LEAST_TOKENS <= tokens <= _MOST_TOKENS:
            raise ImageError(
                f"got {dict(options)}, an image of {tokens} tokens. Expected {_LEAST_TOKENS} to "
                f"{_MOST_TOKENS}."
            )


def native_options(
    image: PIL.Image.Image, options: Mapping[str, Any], family: VLMFamily, image_processor: Any
) -> tuple[PIL.Image.Image, dict[str, Any]]:
    """An image and the arguments with which the native image processor is to be called for it alone.

    Returns:
        The image, resized if the options name a size (in multiples of a token's side, as Qwen's
        `process_vision_info` does); and JSON-like arguments.

    Raises:
        ImageError: As `check_options`.
    """
    if not options:
        return image, {}
    check_options(options, family, image_processor)
    if _RESIZED[0] in options and (factor := _factor(family, image_processor)):
        height, width = _resized(options, factor)
        return image.resize((width, height)), {"do_resize": False}
    bounds = dict.fromkeys(BOUNDED)
    for name, value in options.items():
        known = _ALIASES.get(name, name)
        if bounds[known] not in (None, value):
            raise ImageError(f"got {name}={value!r} and {known}={bounds[known]!r} for one image. Give one.")
        bounds[known] = value
    try:
        changed = with_options(image_processor, image_options(family, bounds))
        check_bounds(changed, family, bounds)
    except ValueError as error:
        raise ImageError(str(error)) from error
    before, after = image_processor.to_dict(), changed.to_dict()
    return image, {name: value for name, value in after.items() if before.get(name) != value}


def marked(text: str, placeholder: str, options: Sequence[Mapping[str, Any]]) -> str:
    """Write the options of each image, in order, into a prompt's text, as marks behind their placeholders.

    Raises:
        ImageError: If the text has not one placeholder an image.
    """
    if not any(options):
        return text
    if text.count(placeholder) != len(options):
        raise ImageError(
            f"The chat template writes {text.count(placeholder)} placeholders ({placeholder!r}) for "
            f"{len(options)} images, so that their options {list(options)} have no place. Expected one each."
        )
    first, *rest = text.split(placeholder)
    marks = [_mark(json.dumps(dict(each), sort_keys=True)) if each else "" for each in options]
    return first + "".join(placeholder + mark + part for mark, part in zip(marks, rest, strict=True))


def unmarked(text: str, placeholder: str) -> tuple[str, list[dict[str, Any]]]:
    """A prompt's text without marks, and the options of each of its images."""
    if _MARK not in text:
        return text, [{} for _ in range(text.count(placeholder))]
    first, *rest = text.split(placeholder)
    options, parts = [], []
    for part in rest:
        mark = _MARKED.match(part)
        if mark is not None and mark[0] != _mark(mark[1]):
            mark = None  # somebody's text that looks like a mark
        options.append(json.loads(mark[1]) if mark else {})
        parts.append(part[mark.end() :] if mark else part)
    return placeholder.join([first, *parts]), options


def _mark(options: str) -> str:
    return f"{_MARK}{options}{hexadecimal(content_hash(options.encode()))}{_MARK}"


def _resized(options: Mapping[str, Any], factor: int) -> tuple[int, int]:
    """(height, width) that the options name, in the nearest multiples of a token's side."""
    return tuple(round(options[name] / factor) * factor for name in _RESIZED)


def _factor(family: VLMFamily, image_processor: Any) -> int | None:
    """Side of the square of pixels that becomes one token, if images are resized to multiples of it."""
    patch, merge = (getattr(image_processor, name, None) for name in ("patch_size", "merge_size"))
    if "max_pixels" in family.processor_options and isinstance(patch, int) and isinstance(merge, int):
        return patch * merge
    return None
