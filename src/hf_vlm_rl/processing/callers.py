"""The trainer that is calling, found among the callers.

What a trainer asks of a policy or a processing class does not say which of its columns it drops, or that
vLLM will answer. These refusals need to know, and nothing else may.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Trainer

IMAGE_COLUMNS = ("image", "images")
# Settings of a trainer that send its ids to a server.
SERVERS = ("use_vllm", "use_teacher_server", "teacher_model_server_url")


def calling_trainer() -> "Trainer | None":
    """The trainer that is calling; None if there is none, or one of its callbacks calls."""
    for trainer, _ in _frames_of_trainers():
        return trainer
    return None


def calling_batch() -> Mapping[str, Any] | None:
    """The batch that the calling trainer computes a loss of; None if that is not what it does."""
    for _, values in _frames_of_trainers():
        if isinstance(values.get("inputs"), Mapping):
            return values["inputs"]
    return None


def columns_of_images(trainer: Any) -> list[str]:
    """Names of the columns of images of the calling trainer's datasets, also while it is being made."""
    datasets = [vars(trainer).get(name) for name in ("train_dataset", "eval_dataset")]
    for _, values in _frames_of_trainers():
        datasets += [values.get(name) for name in ("train_dataset", "eval_dataset")]
    # Lists of rows, and dicts of several evaluation sets, have no columns.
    names = [name for dataset in datasets for name in getattr(dataset, "column_names", None) or []]
    return sorted(set(names) & set(IMAGE_COLUMNS))


def server_setting(trainer: Any) -> str | None:
    """The setting with which a trainer sends ids to a server; None if it sends none."""
    # While one is made, it has no arguments yet; of trainers, some have servers.
    args = vars(trainer).get("args")
    return next((name for name in SERVERS if getattr(args, name, None)), None)


def _frames_of_trainers() -> Iterator[tuple["Trainer", Mapping[str, Any]]]:
    """The calling trainer with the local values of each of its methods that is running, innermost first."""
    # Where transformers' trainers were not imported, none can call, and importing them takes seconds.
    if "transformers.trainer" not in sys.modules:
        return
    from transformers import Trainer, TrainerCallback

    frame: FrameType | None = inspect.currentframe()
    try:
        while frame is not None:
            caller = frame.f_locals.get("self")
            if isinstance(caller, TrainerCallback):
                return
            if isinstance(caller, Trainer):
                yield caller, frame.f_locals
            frame = frame.f_back
    finally:
        del frame  # a frame that refers to itself would keep its locals alive
