"""Trainers under which images would be lost, refused at their first batch of training."""

from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from .._retype import Retyped
from ..errors import ImageError
from ..processing.callers import calling_batch, calling_trainer
from ..processing.ids.texts import HOW_TO
from ..processing.ids.tokenizer import IdsTokenizer
from ..processing.stored_rows import IMAGE_COLUMNS, first_rows, image_columns
from ..processing.tokenizer import VLMTokenizer
from .trained.parts import check_trained

# In a dataset with a column of images, so many rows are searched for images inside their ids.
ROWS = 64


def check_weights() -> None:
    """Refuse a calling trainer whose model has no weight to train: under TRL 1.16 it would log rewards.

    Raises:
        ValueError: If the model is frozen or merged, in whole.
    """
    model = getattr(calling_trainer(), "model", None)
    if isinstance(model, nn.Module):
        check_trained(model, {})


def check_processing_class(own: VLMTokenizer) -> bool:
    """Refuse a calling trainer whose processing class is not the model's `own`; returns whether one calls.

    Raises:
        ImageError: If the trainer's processing class writes other ids, or processes images otherwise.
    """
    trainer = calling_trainer()
    if trainer is None:
        return False
    other = getattr(trainer, "processing_class", None)
    if isinstance(other, IdsTokenizer):
        other = other.processing_class
    if isinstance(other, VLMTokenizer) and other.state is not own.state and _reading(other) != _reading(own):
        raise ImageError(
            f"{type(trainer).__name__} has the processing class of another model ({_named(other)}), or one "
            f"with other settings for images, and the model reads its own ({_named(own)}). Expected "
            "processing_class=policy.processing_class, or policy.tokenizer."
        )
    return True


def _reading(processing: VLMTokenizer) -> tuple:
    """What two processing classes must have in common, so that one model can read the tickets of both."""
    kind = type(processing.native_image_processor).__name__
    return processing.codec.salt, processing.state.placeholder, kind, processing.image_settings()


def _named(processing: VLMTokenizer) -> str:
    return f"{type(processing).__name__} of {processing.state.family.model_type}"


def check_columns(placeholders: Collection[int]) -> None:
    """Refuse a calling trainer that drops its column of images; `placeholders` are ids of their features.

    Raises:
        ImageError: If rows have images, and neither the trainer nor its tokenizer reads them, nor are they
            inside the rows' ids.
    """
    trainer = calling_trainer()
    dataset: Any = getattr(trainer, "train_dataset", None)
    names = image_columns(dataset)
    if not names:
        return
    kind, fault = type(trainer).__name__, None
    if (columns := _reads(trainer)) is not None and not names & set(columns):
        fault = f"{kind} reads no column of images"
    elif not isinstance(getattr(trainer, "processing_class", None), Retyped):
        fault = f"The processing class of {kind} is not the policy's"
    elif not hasattr(dataset, "select"):  # a stream, whose rows would have to be read again
        return
    rows = [row for row in first_rows(dataset, ROWS) if any(_has_images(row.get(name)) for name in names)]
    if any(_ids(row) for row in rows):
        fault = f"{kind} made ids of texts alone"
    if fault is None or not rows or any(set(placeholders) & set(ids) for row in rows for ids in _ids(row)):
        return
    raise ImageError(
        f"{fault}, and the dataset has images in {sorted(names)}: it would train without images. Expected a "
        "column called image or images where the trainer reads one (dataset.rename_column); else "
        f"processing_class=policy.tokenizer and {HOW_TO}; for RewardTrainer, rows of "
        "processing_class.encode_prompt (docs/trainers.md)."
    )


def check_batch() -> None:
    """Refuse a calling trainer whose batch has images, none of which reached the model.

    Raises:
        ImageError: If a row of its batch has an image. The caller has seen that the model's ids have none.
    """
    batch = calling_batch() or {}
    names = [name for name in IMAGE_COLUMNS if any(_has_images(row) for row in _rows(batch.get(name)))]
    if names:
        raise ImageError(
            f"{type(calling_trainer()).__name__} has a batch with images in {names} and gave the model none "
            "of them: it would train without images. Expected a column that this trainer reads, or "
            f"processing_class=policy.tokenizer and {HOW_TO} (docs/trainers.md)."
        )


def _rows(column: Any) -> list:
    return list(column) if isinstance(column, list | tuple) else []


def _has_images(images: Any) -> bool:
    """Whether a row's cell, a list of images or one, has any."""
    return any(image is not None for image in (images if isinstance(images, list | tuple) else [images]))


def _reads(trainer: Any) -> list[str] | None:
    """The columns that a trainer says it reads; None if it says nothing."""
    from transformers import Trainer  # takes seconds to import, and a calling trainer has imported it

    method = type(trainer)._set_signature_columns_if_needed
    if method is Trainer._set_signature_columns_if_needed:
        return None
    trainer._set_signature_columns_if_needed()  # a second call changes nothing
    return trainer._signature_columns


def _ids(row: Mapping[str, Any]) -> list[list[int]]:
    """The columns of a row that hold ids."""
    return [value for name, value in row.items() if name.endswith("ids") and isinstance(value, list)]
