"""Bounds of an image's pixels and tiles: options of `from_pretrained`, and of single images."""

from collections.abc import Mapping
from typing import Any

from ...families import VLMFamily

BOUNDS = (("min_pixels", "max_pixels"), ("min_tiles", "max_tiles"))
OPTIONS = tuple(name for names in BOUNDS for name in names)
# At InternVL's 256 tokens a tile, these are 65,536 tokens for one image, more than its decoders read.
MOST_TILES = 256
# Keys of `size` under which some image processors keep the bounds of the area.
_IN_SIZE = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}

# Of settings, who made them.
_NAMES = frozenset({"image_processor_type", "processor_class"})


def settings_of(image_processor: Any) -> dict[str, Any]:
    """Everything that decides what becomes of an image, by name."""
    return {name: value for name, value in image_processor.to_dict().items() if name not in _NAMES}


def image_options(family: VLMFamily, options: Mapping[str, int | None]) -> dict[str, int]:
    """The options that the caller set, under the names of the family's image processor.

    `options` has the names of `OPTIONS`, and None for those that the caller left out.

    Raises:
        ValueError: If the family has no such option, or a value is no whole number in its bounds.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    unknown = sorted(set(chosen) - set(family.processor_options))
    if unknown:
        raise ValueError(
            f"Got {', '.join(unknown)} for a {family.model_type} model. It takes "
            f"{', '.join(family.processor_options) or 'none of ' + ', '.join(OPTIONS)}."
        )
    for name, value in chosen.items():
        most = MOST_TILES if name.endswith("tiles") else None
        if not isinstance(value, int) or value < 1 or (most is not None and value > most):
            raise ValueError(
                f"Got {name}={value!r}. Expected a whole number from 1 {f'to {most}' if most else 'on'}."
            )
    return {family.processor_options[name]: value for name, value in chosen.items()}


def with_options(image_processor: Any, options: Mapping[str, int]) -> Any:
    """A native image processor with other settings, as if its checkpoint were read with them."""
    return type(image_processor).from_dict(image_processor.to_dict(), **options)


def check_bounds(image_processor: Any, family: VLMFamily, options: Mapping[str, int | None]) -> None:
    """Refuse a smallest size above the largest: native image processors then resize to either.

    Raises:
        ValueError: If the options contradict each other, or what the checkpoint sets.
    """
    for names in BOUNDS:
        if all(options.get(name) is None for name in names):
            continue
        smallest, largest = (_value(image_processor, name, family.processor_options[name]) for name in names)
        if smallest is not None and largest is not None and smallest > largest:
            raise ValueError(
                f"Got {names[0]}={smallest} and {names[1]}={largest} (from the arguments, or from the "
                f"checkpoint). Expected {names[0]} <= {names[1]}: give both."
            )


def _value(image_processor: Any, name: str, native_name: str) -> int | None:
    # A native image processor has either an attribute or a key of `size`, depending on its class.
    value = getattr(image_processor, native_name, None)
    if value is None and name in _IN_SIZE:
        value = getattr(image_processor.size, _IN_SIZE[name], None)
    return value
