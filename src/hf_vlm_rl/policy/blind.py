"""Warns if a model trains and never gets an image: some trainers drop images without a word."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import TicketError
from ..processing.callers import calling_batch, check_readers
from .trainer_checks import check_batch, check_columns, check_processing_class, check_weights

# After so many batches of training without one image, images probably get lost on the way.
PATIENCE = 8


class ImageWatch:
    """Counts the `batches` that a backbone trains on before its first image; None once there was one."""

    def __init__(self) -> None:
        self.batches: int | None = 0
        self._compared = False  # whether the calling trainer's processing class was checked

    def see(self, backbone: Any, kwargs: Mapping[str, Any]) -> None:
        """Check the trainer that calls; warn once if the first `PATIENCE` batches of training have no image.

        `kwargs` are the arguments of a backbone's forward, as they came. A forward counts in training mode,
        with gradients and with `input_ids`; embeddings do not tell whether there are images in them.

        Raises:
            ImageError: If the calling trainer has images and gives the model none of them, or has the
                processing class of another model.
            TicketError: If it gives tickets to a model that cannot read them.
            ValueError: If its model has no weight to train.
        """
        input_ids = kwargs.get("input_ids")
        if input_ids is None:
            _check_embeddings(backbone)
            return
        if not self._compared and input_ids.shape[-1] > 1:  # not for each step of `generate`
            self._compared = check_processing_class(backbone.processing_class)
        if self.batches is None or not backbone.training or not torch.is_grad_enabled():
            return
        if self.batches == 0:
            check_weights()
        state = backbone.processing_class.state
        if bool(state.marks(input_ids).any()):
            self.batches = None
            if kwargs.get("pixel_values") is None:
                check_readers()
            return
        if self.batches == 0:
            check_columns(state.codec.placeholders)
        check_batch()
        self.batches += 1
        if self.batches == PATIENCE:
            self.batches = None
            warnings.warn(
                f"The first {PATIENCE} batches that this {type(backbone).__name__} trains on have no image. "
                "Some trainers of TRL drop a column of images: for RewardTrainer, encode each conversation "
                "with its images by processing_class.encode_prompt, and give the trainer the columns "
                "chosen_ids and rejected_ids; others take policy.tokenizer and rows of its with_tickets "
                "(docs/trainers.md). If these rows have no images, all is well.",
                stacklevel=2,
            )


def _check_embeddings(backbone: Any) -> None:
    """Refuse embeddings that somebody made of a trainer's ids, where images were inside these."""
    ids = (calling_batch() or {}).get("input_ids")
    if isinstance(ids, torch.Tensor) and bool(backbone.processing_class.state.marks(ids).any()):
        raise TicketError(
            "Got embeddings in place of ids that have images inside, as PEFT makes to learn tokens before a "
            "prompt: the images would be read as words. Expected an adapter of weights, such as LoRA."
        )
