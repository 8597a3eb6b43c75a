"""Looks for the trainer that is calling among the frames of the call stack.

The arguments that a trainer passes to a policy or a processing class do not say which columns it drops, or
that vLLM will answer. Refusals need to know that; nothing else may look.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from .._retype import Retyped
from ..errors import TicketError
from .stored_rows import image_columns, row_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer

# Attributes of a trainer with models that read the ids of the policy.
READERS = ("model", "ref_model", "teacher_model")
# Settings of a trainer that send its ids elsewhere.
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


def server_addresses(trainer: Any) -> dict[str, str | None]:
    """The settings with which a trainer sends ids elsewhere, and to which address; None: to no server."""
    # Inside its `__init__`, a trainer has no `args` yet; and not every trainer's have these settings.
    args = vars(trainer).get("args")
    host, port = (getattr(args, f"vllm_server_{name}", None) for name in ("host", "port"))
    server = getattr(args, "vllm_server_base_url", None) or (f"http://{host}:{port}" if port else None)
    addresses = {name: server for name in SERVERS if getattr(args, name, None)}
    if "teacher_model_server_url" in addresses:
        addresses["teacher_model_server_url"] = args.teacher_model_server_url
    if "use_vllm" in addresses and getattr(args, "vllm_mode", "server") != "server":
        addresses["use_vllm"] = None
    teachers = getattr(args, "teacher_server_urls", None) or {}
    addresses |= {f"teacher_server_urls[{name!r}]": url for name, url in teachers.items()}
    # A trainer without `use_vllm` that has a server always asks it (AsyncGRPO, AsyncDistillation).
    if server is not None and not hasattr(args, "use_vllm"):
        addresses["vllm_server_base_url"] = server
    return addresses


def check_readers() -> None:
    """Refuse a calling trainer that gives ids with tickets to a model that cannot read them.

    Raises:
        TicketError: If its model, its reference or its teacher is no policy.
    """
    trainer = calling_trainer()
    for name in READERS if trainer is not None else ():
        model = getattr(trainer, name, None)  # not every trainer has one
        modules = getattr(model, "modules", None)  # a name, inside `__init__`
        if modules is not None and not any(isinstance(part, Retyped) for part in modules()):
            raise TicketError(
                f"The {name} of {type(trainer).__name__} is a {type(model).__name__} and reads the tickets "
                "of images as words. Expected a policy: pass AutoVLMPolicy.from_pretrained(id), or call "
                "hf_vlm_rl.register() before you make a trainer that loads it. A reference is not loaded "
                "with peft_config=policy.lora_config(), nor in GRPO and RLOO with beta=0."
            )


def check_rollout_function(processing: Any, conversations: Sequence[Sequence[Mapping]]) -> None:
    """Refuse to encode prompts with images for a trainer that samples with vLLM and has no rollout function.

    Such a trainer hands the engine ids in which every image is expanded already, together with the images.
    The engine expands them again and answers another prompt, and nothing raises. A callback of a trainer
    encodes for itself and may have images. So does a trainer's other processing class, `policy.tokenizer`,
    which checks the server.

    Raises:
        TicketError: If the caller has a model that is no policy.
        ValueError: If the caller is such a trainer, or has its teacher on a server. Nothing was sampled or
            trained then.
    """
    if not any(_has_image(messages) for messages in conversations):
        return
    trainer = calling_trainer()
    if trainer is None or getattr(trainer, "processing_class", processing) is not processing:
        return
    args = vars(trainer).get("args")
    server = next((name for name in SERVERS if getattr(args, name, None)), None)
    if server is None:
        check_readers()
        return
    kind, no_hook = type(trainer).__name__, object()
    if server != "use_vllm":
        raise ValueError(
            f"{kind} has {server} set, and a prompt has an image: the teacher's server is sent ids, and no "
            "image. Expected processing_class=policy.tokenizer and the address of policy.serving "
            "(docs/vllm.md); or DistillationTrainer with teacher_model=another policy."
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
            "can send vLLM the right prompts. Expected processing_class=policy.tokenizer, with "
            "read_tickets(trainer) or the address of policy.serving (docs/vllm.md); or use_vllm=False."
        )
    check_readers()


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
