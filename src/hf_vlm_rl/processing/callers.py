"""Looks for the trainer that is calling among the frames of the call stack.

The arguments that a trainer passes to a policy or a processing class do not say which columns it drops, or
that vLLM will answer. Refusals need to know that; nothing else may look.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from .stored_rows import image_columns, row_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer

# Settings of a trainer that send its ids to a server.
SERVERS = ("use_vllm", "use_teacher_server", "teacher_model_server_url")


def calling_trainer() -> "Trainer | None":
    """The trainer that is calling; None if there is none, or one of its callbacks calls."""
    for trainer, _ in _frames_of_trainers():
        return trainer
    return None


def calling_batch() -> Mapping[str, Any] | None:
    """The batch that the calling trainer computes a loss of; None if it computes none."""
    for _, values in _frames_of_trainers():
        if isinstance(values.get("inputs"), Mapping):
            return values["inputs"]
    return None


def columns_of_images(trainer: Any) -> list[str]:
    """Names of the columns of images of the calling trainer's datasets, also inside its `__init__`."""
    datasets = [vars(trainer).get(name) for name in ("train_dataset", "eval_dataset")]
    for _, values in _frames_of_trainers():
        datasets += [values.get(name) for name in ("train_dataset", "eval_dataset")]
    return sorted({name for dataset in datasets for name in image_columns(dataset)})


def place_of(image: Any) -> str:
    """Where the calling trainer's datasets have an image, as the end of a message; "" if none has it."""
    trainer = calling_trainer()
    for name in ("train_dataset", "eval_dataset") if trainer is not None else ():
        dataset = getattr(trainer, name, None)  # or a stream, or several
        row = row_of(dataset, image) if hasattr(dataset, "select") else None
        if row is not None:
            return f" It is in row {row} of the {name}."
    return ""


def server_setting(trainer: Any) -> str | None:
    """The setting with which a trainer sends ids to a server; None if it sends none."""
    # Inside its `__init__`, a trainer has no `args` yet; and not every trainer's have these settings.
    args = vars(trainer).get("args")
    return next((name for name in SERVERS if getattr(args, name, None)), None)


def check_rollout_function(conversations: Sequence[Sequence[Mapping]]) -> None:
    """Refuse to encode prompts with images for a trainer that samples with vLLM and has no rollout function.

    Such a trainer hands the engine ids in which every image is expanded already, together with the images.
    The engine expands them again and answers another prompt, and nothing raises. A callback of a trainer
    encodes for itself and may have images.

    Raises:
        ValueError: If the caller is such a trainer, or has its teacher on a server. Nothing was sampled or
            trained then.
    """
    if not any(_has_image(messages) for messages in conversations):
        return
    trainer = calling_trainer()
    server = None if trainer is None else server_setting(trainer)
    if server is None:
        return
    kind, no_hook = type(trainer).__name__, object()
    if server != "use_vllm":
        raise ValueError(
            f"{kind} has {server} set, and a prompt has an image: the teacher's server is sent ids, and no "
            "image. Expected a teacher of its own: DistillationTrainer with teacher_model=another policy."
        )
    # Of the trainers that have vLLM, some have a rollout function.
    rollout = getattr(trainer, "rollout_func", no_hook)
    if rollout is None:
        raise ValueError(
            f"{kind} has use_vllm=True and no rollout function, and a prompt has an image. TRL would send "
            "vLLM the image's tokens expanded, together with the image, and vLLM would expand them again. "
            "Expected rollout_func=vllm_rollout, from hf_vlm_rl.vllm import vllm_rollout; or use_vllm=False."
        )
    if rollout is no_hook:
        raise ValueError(
            f"{kind} has use_vllm=True, and a prompt has an image. It takes no rollout function, so nothing "
            "can send vLLM the right prompts. Expected use_vllm=False, or GRPOTrainer with "
            "rollout_func=vllm_rollout, from hf_vlm_rl.vllm import vllm_rollout."
        )


def _has_image(messages: Sequence[Mapping]) -> bool:
    kinds = ("image", "video")
    return any(block.get("type") in kinds for message in messages for block in message.get("content") or [])


def dataset_being_read() -> "Dataset | None":
    """The `Dataset` that one of the calling frames takes a row of; None if there is none."""
    from datasets import Dataset  # takes a second to import, and whoever decodes its images has it

    return next((values["self"] for values in _frames() if isinstance(values.get("self"), Dataset)), None)


def _frames_of_trainers() -> Iterator[tuple["Trainer", Mapping[str, Any]]]:
    """The calling trainer with the local values of each of its methods that is running, innermost first."""
    # Where transformers' trainers were not imported, none can call, and importing them takes seconds.
    if "transformers.trainer" not in sys.modules:
        return
    from transformers import Trainer, TrainerCallback

    for values in _frames():
        caller = values.get("self")
        if isinstance(caller, TrainerCallback):
            return
        if isinstance(caller, Trainer):
            yield caller, values


def _frames() -> Iterator[Mapping[str, Any]]:
    """The local values of each function that is running, innermost first."""
    frame: FrameType | None = inspect.currentframe()
    try:
        while frame is not None:
            yield frame.f_locals
            frame = frame.f_back
    finally:
        del frame  # a frame that refers to itself would keep its locals alive
