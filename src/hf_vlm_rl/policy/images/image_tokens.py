"""Image tokens in the losses of trainers that know only ids.

Such a trainer may ask for the log-probs of all tokens of a row, tickets of images included. The model reads
images and does not write them. So each of their tokens gets probability 1, and labels leave them out.
(Trainers of `encode_prompt`, PPO and Reward, do not ask for these and get the stock model's logits there.)

Shapes: B rows, T tokens, K of them with logits, V the vocabulary.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch

from ..._scoped import scoped
from ...errors import TicketError
from ...processing.callers import calling_batch
from ...processing.ids.tokenizer import IGNORED
from ..transfer import without_waiting
from .locate import rows_inside

# As a logit: e^-10000 is 0 in every dtype. Finite, unlike the scores' -inf: PPO multiplies
# probabilities by logits, and 0 * -inf is not a number.
NEVER = -1e4

# True in a thread that is inside the forward of a policy, which corrects labels and logits itself.
_answered: ContextVar[bool] = ContextVar("hf_vlm_rl_labels_answered", default=False)


def labels_answered() -> AbstractContextManager[None]:
    """Inside the block, the policy corrects labels and logits, so its backbone does not check labels."""
    return scoped(_answered, True)


def read_images(backbone: Any, input_ids: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Where the images of ids (B, T) with tickets are.

    Returns:
        (B, T), True at their tokens; and whether a row is a prompt of `encode_prompt`, whose trainer compares
        log-probs with those of the scores in `generate`.
    """
    processing = backbone.processing_class
    clean, rows = rows_inside(processing, input_ids)
    places = without_waiting(processing.state.marks(clean), input_ids.device)
    return places, any(row.tail is not None for row in rows)


def unlabelled(labels: torch.Tensor, input_ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Labels (B, T) that leave out the tokens of images.

    Raises:
        ValueError: If the labels are not the ids of their rows (PRMTrainer's are not).
    """
    if labels.shape != places.shape:
        return labels
    if bool(((labels != IGNORED) & (labels != input_ids) & ~places).any()):
        raise ValueError(
            "Got labels that are not the ids of their rows: a policy predicts tokens. Expected labels equal "
            "to input_ids or -100; PRMTrainer takes a model that classifies tokens, which no policy is."
        )
    return labels.masked_fill(places.to(labels.device), IGNORED)


def make_certain(
    logits: torch.Tensor, input_ids: torch.Tensor, places: torch.Tensor, kept: int | torch.Tensor | None
) -> None:
    """Give each image token probability 1, in place: (B, K, V) is the largest tensor of a step.

    `input_ids` (B, T) have the tickets, and `places` (B, T) are those of `read_images`. `kept` says which
    tokens the logits are of, as `logits_to_keep`: the last so many, 0 or None for all, or places among the T.

    Raises:
        ValueError: If the logits are neither of these tokens nor of all.
    """
    indices = torch.arange(input_ids.shape[1], device=input_ids.device)
    chosen = indices[kept.to(indices.device)] if isinstance(kept, torch.Tensor) else indices[-(kept or 0) :]
    if logits.shape[1] == len(indices):  # some models keep all, whatever they are asked for
        chosen = indices if len(chosen) != len(indices) else chosen
    elif logits.shape[1] != len(chosen):
        raise ValueError(
            f"Got logits of {logits.shape[1]} tokens from a model that was asked for {len(chosen)} of "
            f"{len(indices)}. Expected logits of these or of all; call it without logits_to_keep."
        )
    following = torch.zeros_like(places)
    following[:, :-1] = places[:, 1:]
    rows, columns = following[:, chosen].nonzero(as_tuple=True)
    if not len(rows):
        return
    tokens = input_ids[rows, chosen[columns] + 1]
    rows, columns, tokens = (index.to(logits.device) for index in (rows, columns, tokens))
    logits[rows, columns] = NEVER
    logits[rows, columns, tokens] = 0.0


def check_labels(backbone: Any, input_ids: torch.Tensor) -> None:
    """Refuse a loss over the tickets in ids (B, T), if a trainer calls the backbone without the policy.

    Raises:
        TicketError: If the calling trainer has labels at tokens of images.
    """
    if _answered.get() or not torch.is_grad_enabled():
        return
    labels = (calling_batch() or {}).get("labels")
    if not isinstance(labels, torch.Tensor) or labels.shape != input_ids.shape:
        return
    wrong = (labels.to(input_ids.device) != IGNORED) & read_images(backbone, input_ids)[0]
    if bool(wrong.any()):
        row = int(wrong.any(dim=1).nonzero()[0])
        raise TicketError(
            f"Row {row} has labels at {int(wrong[row].sum())} tokens of its images, which are tickets: the "
            "loss would teach the model to write them. Expected rows with prompt and completion, "
            "assistant_only_loss=True, or a labels column of policy.tokenizer.text_labels(input_ids)."
        )


def from_padding(kwargs: Mapping[str, Any]) -> bool:
    """Whether the loss of a forward holds a token that is predicted from a position of padding."""
    labels, mask = kwargs.get("labels"), kwargs.get("attention_mask")
    if labels is None or mask is None or mask.ndim != 2 or mask.shape != labels.shape:
        return False
    return bool(((labels[:, 1:] != IGNORED) & (mask[:, :-1] == 0)).any())


def forbid(logits: torch.Tensor, tokens: Collection[int]) -> None:
    """Make the logits (B, L, V) of placeholders so low that they have no probability, in place.

    Id-only trainers compare log-probs from a forward with those of the scores in `generate`,
    which never samples placeholders; this makes both the same distribution. A batch in which no
    row has a ticket cannot be told from plain text and is left as it is.
    """
    for token in tokens:
        if token < logits.shape[-1]:
            logits[..., token] = NEVER  # in place: it is the largest tensor of a step
