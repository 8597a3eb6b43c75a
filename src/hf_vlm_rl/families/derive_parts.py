"""The parts of a model, found by transformers' conventions: tower, projector, decoder."""

import inspect
import itertools
from collections.abc import Iterator
from types import CodeType
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from transformers import PreTrainedModel

from ..errors import UnsupportedModelError

FEATURES = "get_image_features"

# The fields of a `VLMFamily` that name modules.
PARTS = frozenset({"vision", "projector", "language", "other"})

# What transformers calls the last modules of a tower that bring its features into the decoder's space.
_INNER_PROJECTORS = ("merger", "projector", "connector", "adapter", "aligner")


def derive_parts(model: PreTrainedModel) -> dict[str, Any]:
    """The fields of a `VLMFamily` that name modules.

    Nothing runs: `get_image_features` names the modules that it uses, so weights on the meta device do.

    Raises:
        UnsupportedModelError: If it is no decoder with a vision tower in front.
    """
    backbone, kind = model.base_model, type(model).__name__
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(
            f"{kind} is an encoder-decoder model: its decoder reads the image through cross-attention to an "
            "encoder of its own. Expected a decoder-only vision-language model."
        )
    paths = {id(module): name for name, module in model.named_modules()}
    decoder = _decoder(backbone)
    if not hasattr(backbone, FEATURES):
        parts = _parts_by_name(backbone, decoder)
        prefix = paths[id(backbone)]
        below = {part: tuple(_below(prefix, name) for name in names) for part, names in parts.items()}
        return {**below, "language": paths[id(decoder)]}
    children = dict(backbone.named_children())
    named = names_in(type(backbone), FEATURES)
    if decoder is not backbone:
        # A few forwards project the features themselves; what sound comes through is called so.
        forward = next(_definitions(type(backbone), "forward"))
        named += [name for name in _names(forward) if "audio" not in name]
    text = {name for name, module in children.items() if _is_text(backbone, module, decoder)}
    used = [name for name in dict.fromkeys(named) if name in children.keys() - text]
    towers = _towers(backbone, used)
    prefix = paths[id(backbone)]
    projectors = [name for name in used if name not in towers and _has_weights(children[name])]
    inner = [
        f"{tower}.{name}"
        for tower in towers
        for name, module in children[tower].named_children()
        if any(word in name for word in _INNER_PROJECTORS) and _has_weights(module)
    ]
    # Without a decoder of its own, the rest of the backbone is the decoder.
    rest = [] if decoder is backbone else _rest(backbone, {*used}, decoder)
    return {
        "vision": tuple(_below(prefix, name) for name in towers),
        "projector": tuple(_below(prefix, name) for name in [*projectors, *inner]),
        "language": paths[id(decoder)],
        "other": tuple(_below(prefix, name) for name in rest),
    }


def needs_native_inputs(model: nn.Module) -> bool:
    """Whether a model must see the pixels of a batch as stock does.

    Its backbone makes no image features apart, or takes none; or its tower normalises over the batch, so that
    in training mode an image has other features in other company.
    """
    backbone: Any = model.base_model
    accepted = inspect.signature(backbone.forward).parameters
    apart = hasattr(model.base_model, FEATURES) and "mm_encoder_outputs" in accepted
    return not apart or any(isinstance(module, _BatchNorm) for module in model.modules())


def _parts_by_name(backbone: Any, decoder: nn.Module) -> dict[str, list[str]]:
    """Towers, projectors and the rest of a backbone that does not say how it makes image features."""
    encoder = backbone.get_encoder(modality="image")
    modules = dict(backbone.named_modules())
    towers: list[str] = []
    for name, module in modules.items():
        taking = module is encoder if encoder is not backbone else name and _takes_pixels(module)
        if taking and not any(name.startswith(f"{tower}.") for tower in towers):
            towers.append(name)
    if not towers:
        raise UnsupportedModelError(
            f"{type(backbone).__name__} has no module that takes pixels, and no {FEATURES}(). Expected a "
            "decoder-only vision-language model, as transformers' are."
        )
    parts: dict[str, list[str]] = {"vision": towers, "projector": [], "other": []}
    for name, module in modules.items():
        parent = name.rpartition(".")[0]
        level = [tower for tower in towers if tower.startswith(f"{parent}." if parent else "")]
        holds = any(f"{tower}.".startswith(f"{name}.") for tower in towers)
        if not name or holds or not level or not _has_weights(module) or _is_text(backbone, module, decoder):
            continue
        if any(below == parent or parent.startswith(f"{below}.") for below in towers):
            continue
        # What stands beside the tower in a module of images, or is called so, brings features to the decoder.
        beside = bool(parent) and any(tower.rpartition(".")[0] == parent for tower in level)
        called = any(word in name for word in _INNER_PROJECTORS)
        if parent or decoder is not backbone:
            parts["projector" if beside or called else "other"].append(name)
    return parts


def _is_text(backbone: Any, module: nn.Module, decoder: nn.Module) -> bool:
    """Whether a module is or holds the decoder, its embeddings or its head."""
    text = (decoder, backbone.get_input_embeddings(), backbone.get_output_embeddings())
    return any(part is each for part in module.modules() for each in text)


def _decoder(backbone: Any) -> nn.Module:
    """The text decoder without a head."""
    decoder = backbone.get_decoder()
    whole = isinstance(decoder, PreTrainedModel) and decoder.get_output_embeddings() is not None
    if decoder is backbone or not whole:
        return decoder
    # Some backbones hold a whole language model, with a head: the child with the embeddings is its decoder.
    embeddings = decoder.get_input_embeddings()
    return next(child for child in decoder.children() if any(part is embeddings for part in child.modules()))


def names_in(kind: type, method: str) -> list[str]:
    """The attributes that a method of a model names, with those of the methods that it calls, in order."""
    names: dict[str, None] = {}
    methods = [method]
    for called in methods:
        named = [name for code in _definitions(kind, called) for name in _names(code)]
        names |= dict.fromkeys(named)
        methods += [name for name in named if name not in methods and _is_own_method(kind, name)]
    return list(names)


def _definitions(kind: type, method: str) -> Iterator[CodeType]:
    """The code of a method, and that of the base classes' methods of which it is an extension."""
    for base in kind.__mro__:
        if method in vars(base):
            code = inspect.unwrap(vars(base)[method]).__code__
            yield code
            if "super" not in _names(code):
                return


def _names(code: CodeType) -> list[str]:
    """The names in a function and in the comprehensions and functions inside it."""
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *(name for part in inside for name in _names(part))]


def _is_own_method(kind: type, name: str) -> bool:
    """Whether a model's own class defines a method; those of transformers' base classes name no modules."""
    own = itertools.takewhile(lambda base: base is not PreTrainedModel, kind.__mro__)
    method = next((vars(base)[name] for base in own if name in vars(base)), None)
    return inspect.isfunction(method) and name != "forward"


def _towers(backbone: Any, used: list[str]) -> list[str]:
    """Which of the modules in use turn pixels into features: those that take pixels, or else the largest."""
    if not used:
        raise UnsupportedModelError(
            f"{FEATURES}() of {type(backbone).__name__} uses no module. Expected a vision tower; a "
            "checkpoint without one is a language model."
        )
    modules = {name: backbone.get_submodule(name) for name in used}
    encoder = backbone.get_encoder(modality="image")
    towers = [name for name, module in modules.items() if module is encoder or _takes_pixels(module)]
    return towers or [max(used, key=lambda name: sum(p.numel() for p in modules[name].parameters()))]


def _rest(backbone: Any, used: set[str], decoder: nn.Module) -> list[str]:
    """Children of the backbone that have weights, and neither make image features nor hold the decoder."""
    return [
        name
        for name, module in backbone.named_children()
        if name not in used and _has_weights(module) and not _is_text(backbone, module, decoder)
    ]


def _takes_pixels(module: nn.Module) -> bool:
    return any(name.startswith("pixel_values") for name in inspect.signature(module.forward).parameters)


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _below(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
