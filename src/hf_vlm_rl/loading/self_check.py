"""The self-check: compares small forwards of a policy with those of its stock model.

It runs on a loaded model of a family that no test of this package covers, and compares what reaches the
decoder (embeddings with features, positions, masks, token types), and for small float32 models the logits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import nn
from transformers.utils import logging

from ..errors import SelfCheckError
from ..families.derive_inputs import TALL, WIDE, noise, prompt, token_types
from ..policy.eval_mode import evaluating
from ..policy.images.image_features import tensors_in
from . import verdicts
from .video_check import video_batches

logger = logging.get_logger(__name__)

# Forwards of larger models stop before the decoder: a tower and some hundred embeddings cost little.
MOST_PARAMETERS = 2_000_000_000

# Largest difference as a share of the largest value. A policy groups images of different sizes otherwise than
# stock for the tower, which changes the last bits; a wrong tensor is off by about its own size.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-4}
TOLERANCE_HALF = 0.03

QUESTIONS = ("What is this?", "Which of the colours is the brightest one?")

AS_IMAGES = "Pass the video's frames as images."

# What must be equal for a prompt without an image.
WITHOUT_IMAGES = {"inputs_embeds", "position_ids", "logits"}

WAYS_ON = (
    "Pass native_inputs=True to give the stock model the native processor's tensors (nothing is shared "
    "then), or write a row: docs/adding-a-family.md."
)


class _Arrived(Exception):
    """The decoder was reached, and its layers need not run."""


def check_family(policy: Any) -> None:
    """Compare a policy with its stock model on a few small images, and keep the verdict on disk.

    If prompts cannot be shared exactly, the backbone's `sharing.refusal` says so from then on.

    Raises:
        SelfCheckError: If the two differ. It names the clause and the difference.
    """
    backbone = policy.base_model
    verdict = verdicts.place_of(policy)
    known = verdicts.read(verdict)
    if known is not None:
        backbone.sharing.refusal, backbone.sharing.unpacked = known["not_shared"], known["not_packed"]
        if not known["batches_images"]:
            policy.processing_class.state.encode_one_by_one()
        policy.processing_class.state.videos.refusal = known["no_videos"]
        return
    if any(hasattr(parameter, "ds_id") for parameter in policy.parameters()):  # partitioned by ZeRO-3
        raise SelfCheckError(
            f"{type(policy).__name__} is no model that this package's tests cover, and its weights are "
            "spread over ranks, where it cannot be compared with stock. Load it once in a single process "
            "with AutoVLMPolicy.from_pretrained; the verdict is kept."
        )
    try:
        for clause, difference, allowed in compare(policy):
            if difference > allowed:
                raise SelfCheckError(
                    f"As a policy, {type(policy).__name__} does not compute what the stock model computes. "
                    f"{clause}: off by {difference:.1e} of the largest value, where {allowed:.0e} is "
                    f"rounding. Derived was {policy.family}. {WAYS_ON}"
                )
        backbone.sharing.refusal = refusal_to_share(policy)
        no_videos = policy.processing_class.state.videos.refusal = refusal_of_videos(policy)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, SelfCheckError):
            raise
        raise SelfCheckError(
            f"As a policy, {type(policy).__name__} cannot be compared with the stock model: "
            f"{type(error).__name__}: {error}. Derived was {policy.family}. {WAYS_ON}"
        ) from error
    finally:
        backbone.renew()
    facts = {"model": type(policy).__name__, "transformers": transformers.__version__}
    sharing = {"not_shared": backbone.sharing.refusal, "not_packed": backbone.sharing.unpacked}
    # The check also finds whether images can go through the tower together: no rank may find that out later.
    media = {"batches_images": policy.family.batches_images, "no_videos": no_videos}
    verdicts.keep(verdict, facts | sharing | media)


def compare(policy: Any) -> Iterator[tuple[str, float, float]]:
    """For each clause of the check: its name, how far the policy is off, and how far rounding may be off."""
    native = policy.processing_class.native()
    wide, tall, second = noise(WIDE, 0), noise(TALL, 1), noise(WIDE, 2)
    alone = (QUESTIONS[0], [wide])
    clauses = {
        "two images of different size in a row": [(QUESTIONS[0], [wide, tall])],
        "two images of one size in a left-padded batch": [alone, (QUESTIONS[1], [second])],
        # An image is encoded once for all its rows: its features must not depend on a call's other images.
        "an image by itself": [alone],
        "an image twice, beside another": [alone, alone, (QUESTIONS[1], [second])],
    }
    if not policy.family.needs_image:
        clauses["a prompt without an image"] = [(QUESTIONS[0], [])]
    for clause, rows in clauses.items():
        ours = _batch(policy, policy.processing_class, rows)
        # The native processor writes token types for text, too: zeros, and a mask that says nothing new.
        only = None if rows[0][1] else WITHOUT_IMAGES
        yield from _differences(policy, clause, ours, _batch(policy, native, rows), only)


def _differences(
    policy: Any, clause: str, ours: dict[str, Any], stock: dict[str, Any], only: set[str] | None = None
) -> Iterator[tuple[str, float, float]]:
    """As `compare`, for one clause: the policy's batch and the native processor's, on the model's device."""
    if ours["input_ids"].tolist() != stock["input_ids"].tolist():
        yield f"{clause}: the ids", torch.inf, 0.0
        return
    whole, allowed = _is_small(policy), TOLERANCE.get(policy.dtype, TOLERANCE_HALF)
    computed, expected = _arguments(policy, ours, whole), _arguments(policy, _stock(policy, stock), whole)
    for name in sorted(computed.keys() | expected.keys() if only is None else only & {*computed, *expected}):
        difference = _difference(computed.get(name), expected.get(name), stock["attention_mask"].bool())
        yield f"{clause}: {name}", difference, allowed


def refusal_of_videos(policy: Any) -> str:
    """Why a policy must refuse videos; "" if it computes of small clips what stock computes."""
    refusal = policy.processing_class.state.videos.refusal
    if refusal:
        return refusal
    try:
        for clause, ours, stock in video_batches(policy):
            batches = _placed(policy, ours), _placed(policy, stock)
            for name, difference, allowed in _differences(policy, clause, *batches):
                if difference > allowed:
                    return (
                        f"As a policy, the model does not compute of videos what the stock model computes. "
                        f"{name}: off by {difference:.1e} of the largest value. {AS_IMAGES}"
                    )
    except Exception as error:  # whatever stock models and processors meet
        return (
            f"{type(policy).__name__} cannot be compared with the stock model on a video: "
            f"{type(error).__name__}: {error}. {AS_IMAGES}"
        )
    return ""


def _placed(policy: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch without labels, its tensors on the model's device."""
    return {
        name: value.to(policy.device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
        if name != "labels"
    }


def stock_batch_effect(policy: Any) -> float:
    """How far the stock model's own logits of a row move when it is left-padded beside another one.

    It is a share of the largest logit; about 1e-6 in float32 is rounding. Some models are off by much: their
    log-probs of a rollout and of a training batch disagree then.
    """
    native = policy.processing_class.native()
    rows = [(QUESTIONS[0], [noise(WIDE, 0)]), (QUESTIONS[1], [noise(WIDE, 2)])]
    batch = _stock(policy, _batch(policy, native, rows))
    together = _arguments(policy, batch, whole=True)["logits"]
    effects = []
    for index, row in enumerate(rows):
        alone = _arguments(policy, _stock(policy, _batch(policy, native, [row])), whole=True)["logits"]
        seen = batch["attention_mask"][index].bool()
        effects.append(_difference(together[index][seen], alone[0], seen[seen]))
    return max(effects)


def refusal_to_share(policy: Any) -> str | None:
    """Why rows must not share their prompts; None if two rows with one prompt agree with each by itself."""
    sharing = policy.base_model.sharing
    if sharing.refusal is not None or sharing.unpacked is not None or not _is_small(policy):
        return sharing.refusal
    batch = _batch(policy, policy.processing_class, [(QUESTIONS[0], [noise(WIDE, 0)])] * 2)
    # The rows differ in their last tokens.
    batch["input_ids"][1, -2:] = batch["input_ids"][0, :2]
    apart = _outputs(policy, batch, shared=False)
    together = _outputs(policy, batch, shared=True)
    difference = _difference(together, apart, batch["attention_mask"].bool())
    if difference <= TOLERANCE[policy.dtype]:
        return None
    reason = f"the self-check failed: rows with one prompt differ by {difference:.1e} of the largest value"
    logger.warning(f"Rows will not share their prompts: {reason}.")
    return reason


def _outputs(policy: Any, batch: Mapping[str, Any], shared: bool) -> torch.Tensor:
    """(B, T, ...): hidden states, or the logits of a model that is its own backbone."""
    backbone = policy.base_model
    mode = backbone.sharing.mode
    backbone.sharing.mode = shared
    try:
        with torch.no_grad(), evaluating(policy):
            return backbone(**batch, use_cache=False)[0]
    finally:
        backbone.sharing.mode = mode


def _is_small(policy: Any) -> bool:
    """Whether to run the whole model, as in float32 a wrong input of the decoder shows in the logits, too."""
    return policy.dtype in TOLERANCE and policy.num_parameters() <= MOST_PARAMETERS


def _batch(policy: Any, processor: Any, rows: Sequence[tuple[str, list]]) -> dict[str, Any]:
    """Prompts with images as a left-padded batch on the model's device."""
    texts = [prompt(processor, len(images), text) for text, images in rows]
    images = [images for _, images in rows] if rows[0][1] else None
    batch = processor(images=images, text=texts, padding=True, padding_side="left", return_tensors="pt")
    return _placed(policy, batch)


def _stock(policy: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch as the stock model takes it: pixels in its dtype, and the token types that it asks for."""
    processing = policy.processing_class
    missing = [name for name in policy.family.token_types if name not in batch]
    types = {name: token_types(processing, name, batch["input_ids"]) for name in missing}
    tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    cast = {name: value.to(policy.dtype) for name, value in tensors.items() if value.is_floating_point()}
    return {**batch, **cast, **types}


def _arguments(policy: Any, batch: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    """What reaches the decoder in a forward, and the logits if it runs to its end."""
    arrived: dict[str, Any] = {}
    switch = policy.base_model.sharing
    mode, switch.mode = switch.mode, False
    try:
        with torch.no_grad(), evaluating(policy), _watched(policy, arrived, whole):
            arrived["logits"] = policy(**batch).logits
    except _Arrived:
        pass
    finally:
        switch.mode = mode
    return arrived


@contextmanager
def _watched(policy: Any, arrived: dict[str, Any], whole: bool) -> Iterator[None]:
    """A context that notes in `arrived` the tensors that the decoder is called with."""

    def note(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        arrived.update(
            {name: value for name, value in kwargs.items() if any(True for _ in tensors_in(value))}
        )
        if not whole:
            raise _Arrived

    decoder = policy.base_model.decoder
    if decoder is policy.base_model:  # its arguments are the batch itself
        yield
        return
    handle = decoder.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _difference(computed: Any, expected: Any, mask: torch.Tensor) -> float:
    """How far two arguments are apart, as a share of the largest value; padding aside."""
    pairs = [list(tensors_in(computed)), list(tensors_in(expected))]
    if [tensor.shape for tensor in pairs[0]] != [tensor.shape for tensor in pairs[1]]:
        return torch.inf
    worst = 0.0
    for ours, stock in zip(*pairs, strict=True):
        if ours.shape[: mask.ndim] == mask.shape:
            ours, stock = ours[mask.to(ours.device)], stock[mask.to(stock.device)]
        if not ours.is_floating_point():
            worst = max(worst, 0.0 if torch.equal(ours, stock) else torch.inf)
        elif ours.numel():
            finite = stock.isfinite()
            if not torch.equal(finite, ours.isfinite()):
                return torch.inf
            apart = (ours - stock)[finite].abs().max() / stock[finite].abs().max().clamp(min=1e-6)
            worst = max(worst, apart.item())
    return worst
