"""Training arguments that may be published: numbers, switches and plain words, and nothing else.

What could name a person, a machine or a place (tokens, paths, hosts, addresses, run names) is left
out by a rule on the value and one on the name, so that an argument added to a later TRL is safe too.
"""

import dataclasses
import re
from typing import Any

from transformers import TrainingArguments

# Shown on every card that has them; the others only where they differ from their default.
MAIN = (
    "learning_rate",
    "lr_scheduler_type",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "max_steps",
    "num_generations",
    "max_completion_length",
    "temperature",
    "beta",
    "loss_type",
    "seed",
)
# Of no interest to a reader of the card.
TECHNICAL = re.compile(
    r"logging|log_|report_to|save_|eval_|disable_tqdm|use_cpu|dataloader|push_to_hub|remove_unused|ddp_|do_"
    r"|overwrite|batch_eval|local_rank|project|run_name"
)
PRIVATE = re.compile(
    r"token$|_key$|password|secret|hub_|_dir$|_path$|_host$|_url$|_repo$|_repo_id$|_id$|_name$|_file$"
    r"|^project$|_port$|_config$|_kwargs$|^deepspeed$|^resume_from|^debug$"
)
PLAIN = re.compile(r"[\w+.-]{1,40}")


def shareable(arguments: TrainingArguments) -> dict[str, Any]:
    """The training arguments that may be published, as JSON values."""
    values = arguments.to_dict()
    return {name: value for name, value in values.items() if not PRIVATE.search(name) and _is_plain(value)}


def telling(arguments: TrainingArguments) -> dict[str, Any]:
    """Those of `shareable` that a card shows, the main ones first."""
    public = shareable(arguments)
    main = {name: public[name] for name in MAIN if public.get(name) is not None}
    # At -1 the number of epochs decides; at a number of steps, it decides.
    main.pop("num_train_epochs" if main.get("max_steps", -1) > 0 else "max_steps", None)
    defaults = {
        item.name: item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        for item in dataclasses.fields(arguments)
    }
    changed = {
        name: value
        for name, value in public.items()
        if name not in MAIN and not TECHNICAL.search(name) and value != defaults[name]
    }
    return main | changed


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, str):
        return PLAIN.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)
