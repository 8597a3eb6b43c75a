"""adapter_config.json, taken field by field.

Somebody else wrote the file: it may not choose a module to import, a size to allocate or a time to spend. A
field that is not listed here is refused if it has a value.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CheckpointError, UnsupportedModelError
from .files import CONFIG, read_config

if TYPE_CHECKING:
    from peft import PeftConfig

Check = Callable[[Any], bool]

# PEFT reads names as patterns, too; no pattern of these characters takes long to match.
NAME = re.compile(r"[\w.-]{1,500}")
WORD = re.compile(r"[\w+.-]{1,100}")
MOST_ENTRIES = 20_000
MOST_BYTES = 8 << 20  # of the file
LONGEST_PATTERN = 10_000

# Values of `init_lora_weights` that leave the base as it is, and those that take a part out of its weights.
PLAIN_STARTS = ("gaussian", "eva", "orthogonal")
CHANGED_BASE = re.compile(r"pissa|olora|pissa_niter_([1-9]|[1-5]\d|6[0-4])", re.IGNORECASE)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_PATTERN


def _integer(least: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(least: float, most: float) -> Check:
    return lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and least <= value <= most
    )


def _list(item: Check) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= MOST_ENTRIES and all(map(item, value))


def _mapping(key: Check, item: Check) -> Check:
    return lambda value: (
        isinstance(value, dict)
        and len(value) <= MOST_ENTRIES
        and all(map(key, value))
        and all(map(item, value.values()))
    )


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


def _name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _start(value: Any) -> bool:
    return _plain_start(value) or (isinstance(value, str) and CHANGED_BASE.fullmatch(value) is not None)


def _plain_start(value: Any) -> bool:
    return isinstance(value, bool) or value in PLAIN_STARTS


def _word(value: Any) -> bool:
    return isinstance(value, str) and WORD.fullmatch(value) is not None


# What is read of `auto_mapping`: PEFT's two names, and our notes (`trained.fingerprint`, `hub.cards.facts`).
# Others write theirs beside them, as Unsloth its `unsloth_fixed`.
ABOUT: dict[str, Check] = {
    "base_model_class": _name,
    "parent_library": _name,
    "base_dtype": _name,
    "base_weights": _mapping(_name, _list(_number(-math.inf, math.inf))),
    "stages": _list(_mapping(_name, lambda item: item is None or _word(item) or _integer(0)(item))),
}


def _about(value: Any) -> bool:
    return isinstance(value, dict) and all(check(value[key]) for key, check in ABOUT.items() if key in value)


_COMMON: dict[str, Check] = {
    "peft_type": _text,
    "task_type": _text,
    "peft_version": _text,
    "auto_mapping": _about,
    "base_model_name_or_path": _text,
    "revision": _text,
    "inference_mode": _flag,
    "target_modules": _either(_list(_name), _text),
    "exclude_modules": _either(_list(_name), _text),
    "modules_to_save": _list(_name),
    "fan_in_fan_out": _flag,
}
_PATTERN = _mapping(_text, _integer(1))

# Kind of adapter to its fields, each with the check of its value.
FIELDS: dict[str, dict[str, Check]] = {
    "LORA": _COMMON
    | {
        "r": _integer(1),
        "lora_alpha": _number(-1e6, 1e6),
        "lora_dropout": _number(0, 1),
        "bias": lambda value: value in ("none", "all", "lora_only"),
        "use_rslora": _flag,
        "use_dora": _flag,
        "lora_bias": _flag,
        "ensure_weight_tying": _flag,
        "init_lora_weights": _start,
        "layers_to_transform": _either(_integer(0), _list(_integer(0))),
        "layers_pattern": _either(_name, _list(_name)),
        "rank_pattern": _PATTERN,
        "alpha_pattern": _mapping(_text, _number(-1e6, 1e6)),
        "target_parameters": _list(_name),
        "trainable_token_indices": _either(_list(_integer(0)), _mapping(_name, _list(_integer(0)))),
    },
    "IA3": _COMMON | {"feedforward_modules": _either(_list(_name), _text), "init_ia3_weights": _flag},
}

# Fields without effect on a saved adapter: PEFT always writes them, or reads them only for initial weights.
IGNORED = frozenset({"megatron_core", "qalora_group_size", "eva_config", "runtime_config"})


def load_config(folder: Path, source: str) -> "PeftConfig":
    """The config of an adapter, made of the fields that are listed here.

    Raises:
        CheckpointError: If the file is damaged, or a field is not listed or is of another type or range.
        UnsupportedModelError: If adapters of its kind, or its task, are not loaded here.
    """
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftType, PromptLearningConfig

    path = folder / CONFIG
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
        stored = read_config(folder)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}). Save or download the adapter again."
        ) from error
    kind = stored["peft_type"]
    if not isinstance(kind, str) or kind not in PeftType.__members__:
        raise CheckpointError(
            f"{path} cannot be read (peft_type is {kind!r}). It is damaged, or written by a newer PEFT: "
            "download it again or update peft."
        )
    if kind not in FIELDS:
        of_prompt = issubclass(PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(kind)], PromptLearningConfig)
        ids = "embeddings of a prompt stand in place of the ids, in which a policy finds its images"
        raise UnsupportedModelError(
            f"{source!r} is a {kind} adapter. Expected one of {', '.join(FIELDS)}: "
            f"{ids if of_prompt else 'what the config of another kind may say is not checked here'}. "
            "If you trust its files: PeftModel.from_pretrained(policy, adapter)."
        )
    taken = {}
    for field, value in stored.items():
        if field in IGNORED or not _says_something(field, value):
            continue
        check = FIELDS[kind].get(field)
        if check is None or not check(value):
            shown = json.dumps(value)
            raise CheckpointError(
                f"{path} cannot be taken: {field} is {shown[:200]}. "
                + ("No such field of an adapter is read here" if check is None else "Expected another value")
                + " (docs/adapters.md). If you trust the file: PeftModel.from_pretrained(policy, adapter)."
            )
        taken[field] = value
    if about := taken.get("auto_mapping"):
        taken["auto_mapping"] = {key: about[key] for key in ABOUT if key in about}
    if taken.get("task_type") == "SEQ_CLS":
        raise UnsupportedModelError(
            f"{source!r} is an adapter of a value or reward model. Load its base with AutoVLMRewardModel, "
            "then PeftModel.from_pretrained(reward_model, adapter)."
        )
    try:
        return PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(taken.pop("peft_type"))](**taken)
    except (TypeError, ValueError) as error:  # fields that contradict each other, or an older PEFT
        raise CheckpointError(
            f"{path} cannot be taken ({error}). Save the adapter again, or update peft."
        ) from error


def _says_something(field: str, value: Any) -> bool:
    """Whether somebody set a field: a newer PEFT writes fields that are new, empty or false, by default."""
    known = any(field in fields for fields in FIELDS.values())
    return value is not None and (known or bool(value))


def largest_rank(config: Any) -> int:
    """The largest rank that LoRA layers of a config get; 0 for other adapters."""
    if config.peft_type != "LORA":
        return 0
    return max([config.r, *(config.rank_pattern or {}).values()])


def changes_base(config: Any) -> bool:
    """Whether an adapter changed the weights of its base when it was made, as PiSSA and OLoRA do.

    Their A and B begin as a part of the base's weights, which is taken out of these.
    """
    return not _plain_start(getattr(config, "init_lora_weights", True))  # a field of LoRA only
