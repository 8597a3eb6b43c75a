"""What is read from an adapter's files and, if it is at hand, from the model that carries it."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import UnsupportedModelError
from ...families import VLMFamily
from ...families.derive_parts import derive_parts
from ...families.registry import family_for
from ...loading.adapters.files import PREFIX, read_config, read_shapes
from ...policy.policy import VLMPolicy
from ...policy.trained.parts import PART_NAMES, below, part_of
from .facts import AdapterFacts, PartFacts

SETTINGS = {
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "rsLoRA": "use_rslora",
    "DoRA": "use_dora",
    "bias": "bias",
}


def adapter_facts(folder: Path, model: Any = None) -> AdapterFacts:
    """The adapter in a folder with `adapter_config.json` and `adapter_model.safetensors`.

    The `PeftModel` that it was saved from gives the sizes of the model's parts.

    Raises:
        ValueError: If one of them is damaged.
    """
    config = read_config(folder)
    shapes = {key.removeprefix(PREFIX): shape for key, shape in read_shapes(folder).items()}
    # PEFT wraps a module of fused experts once for each of its parameters.
    layers = {key.split(".lora_")[0].replace(".base_layer", "") for key in shapes if ".lora_" in key}
    settings = {
        label: config[key] for label, key in SETTINGS.items() if config.get(key) not in (None, "none")
    }
    whole = tuple(sorted(config.get("modules_to_save") or ()))
    if whole:
        settings["trained in full"] = ", ".join(whole)
    total, parts = (None, ()) if model is None else _parts(model, shapes, whole)
    return AdapterFacts(
        kind=config["peft_type"],
        settings={key: value for key, value in settings.items() if value is not False},
        targets=dict(sorted(Counter(layer.rsplit(".", 1)[-1] for layer in layers).items())),
        parameters=sum(map(math.prod, shapes.values())),
        total=total,
        parts=parts,
    )


def quantization(model: Any) -> str | None:
    """How the base's weights are held, e.g. "4-bit nf4"; None if they are not quantised."""
    config = getattr(model.config, "quantization_config", None)  # set by loading quantised weights
    if config is None:
        return None
    settings = config if isinstance(config, Mapping) else config.to_dict()
    if settings.get("load_in_4bit"):
        return f"4-bit {settings.get('bnb_4bit_quant_type', '')}".strip()
    return "8-bit" if settings.get("load_in_8bit") else str(settings.get("quant_method", "quantised"))


def _parts(model: Any, saved: Iterable[str], whole: tuple[str, ...]) -> tuple[int, tuple[PartFacts, ...]]:
    base = model.get_base_model()
    # PEFT puts the adapter's name into its own parameters' names, and nowhere else.
    sizes = {
        name: _size(parameter)
        for name, parameter in base.named_parameters()
        if not model.peft_config.keys() & name.split(".")
    }
    total = sum(sizes.values())
    try:
        family = base.family if isinstance(base, VLMPolicy) else _named_parts(base)
    except UnsupportedModelError:
        return total, ()
    output = base.get_output_embeddings()
    heads = [name for name, module in base.named_modules() if module is output]

    def part(name: str) -> str:
        return PART_NAMES["language" if below(name, heads) else part_of(name, family)]

    parameters: Counter[str] = Counter()
    for name, size in sizes.items():
        parameters[part(name)] += size
    # Modules that are trained as a whole are named by the end of their path.
    in_full = {part(key) for key in saved if any(f".{module}." in f".{key}" for module in whole)}
    trained = dict.fromkeys(map(part, saved), "adapter") | dict.fromkeys(in_full, "in full")
    names = [name for name in PART_NAMES.values() if parameters[name]]
    return total, tuple(PartFacts(name, parameters[name], trained.get(name, "frozen")) for name in names)


def _named_parts(model: Any) -> VLMFamily:
    """The family of a stock model, as far as it names modules."""
    return family_for(model.config.model_type).completed(derive_parts(model))


def _size(parameter: Any) -> int:
    size = getattr(parameter, "ds_numel", None) or parameter.numel()  # ZeRO-3 leaves empty tensors
    if type(parameter).__name__ == "Params4bit":
        size *= 2 * parameter.element_size()  # two values to a byte
    return size
