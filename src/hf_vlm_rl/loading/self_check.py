"""Before a family is used that no test of this package covers: small forwards, ours against stock's.

Both run on the loaded model. What reaches the decoder is compared (embeddings with features in them,
positions, masks, token types), and for small models in float32 the logits as well.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.utils import logging

from ..errors import SelfCheckError
from ..families.derive_inputs import TALL, WIDE, noise, prompt, token_types
from ..policy.eval_mode import evaluating
from ..policy.image_features import tensors_in
from ..processing.images.disk import default_directory
from .video_check import video_batches

logger = logging.get_logger(__name__)

# Larger models stop at the decoder's door: a tower and some hundred tokens cost little there.
MOST_PARAMETERS = 2_000_000_000

# Largest difference as a share of the largest value. Images of different sizes go through a tower in another
# grouping than stock's, which moves the last bits; what is wrong is off by its size.
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

# Part of a verdict's key: goes up when the check changes.
VERSION = 4


class _Arrived(Exception):
    """The decoder was reached, and its layers need not run."""


def check_family(policy: Any) -> None:
    """Compare a policy with its stock model on a few small images; a verdict is kept on disk.

    Where prompts cannot be shared exactly, the policy's `sharing` is told so.

    Args:
        policy: A policy whose weights are loaded.

    Raises:
        SelfCheckError: If the two differ. It names the clause and the difference.
    """
    backbone = policy.base_model
    verdict = default_directory() / "families" / f"{_key(policy)}.json"
    known = _read(verdict)
    if known is not None:
        backbone.sharing.refusal, backbone.sharing.way = known["not_shared"], known["way"]
        if not known["packs"]:
            policy.processing_class.state.pack_no_images()
        policy.processing_class.state.videos.refusal = known["no_videos"]
        return
    if any(hasattr(parameter, "ds_id") for parameter in policy.parameters()):  # partitioned by ZeRO-3
        raise SelfCheckError(
            f"{type(policy).__name__} is no model that this package's tests cover, and its weights are "
            "spread over ranks, where it cannot be compared with stock. Load it once in a single process "
            "with AutoVLMPolicy.from_pretrained; the verdict is kept."
        )
    kept = {name: value for name, value in vars(backbone).items() if not name.startswith("_")}
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
        vars(backbone).update(kept)  # what forwards left behind (rope_deltas)
        backbone.renew()
    facts = {"model": type(policy).__name__, "transformers": transformers.__version__}
    # Whether images go through the tower together shows in the check, too: ranks must not find out later.
    sharing = {"not_shared": backbone.sharing.refusal, "way": backbone.sharing.way}
    _keep(verdict, facts | sharing | {"packs": policy.family.packs, "no_videos": no_videos})


def _read(verdict: Path) -> dict[str, Any] | None:
    """A verdict that was kept; None if there is none, or only half of one."""
    try:
        return json.loads(verdict.read_text())
    except (OSError, ValueError):
        return None


def _keep(verdict: Path, facts: Mapping[str, Any]) -> None:
    """Write a verdict as a whole; without a place to write, the next process compares again."""
    part = verdict.with_suffix(f".{os.getpid()}")
    try:
        verdict.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(facts))
        part.replace(verdict)
    except OSError as error:
        logger.warning(f"Cannot keep the result of comparing {facts['model']} with stock: {error}")


def compare(policy: Any) -> Iterator[tuple[str, float, float]]:
    """Each clause of the check, how far the policy is off, and how far rounding may be."""
    native = policy.processing_class.native()
    wide, tall, second = noise(WIDE, 0), noise(TALL, 1), noise(WIDE, 2)
    clauses = {
        "two images of different size in a row": [(QUESTIONS[0], [wide, tall])],
        "two images of one size in a left-padded batch": [(QUESTIONS[0], [wide]), (QUESTIONS[1], [second])],
    }
    if not policy.family.needs_image:
        clauses["a prompt without an image"] = [(QUESTIONS[0], [])]
    whole = _is_small(policy)
    allowed = TOLERANCE.get(policy.dtype, TOLERANCE_HALF)
    for clause, rows in clauses.items():
        ours = _batch(policy, policy.processing_class, rows)
        stock = _batch(policy, native, rows)
        if ours["input_ids"].tolist() != stock["input_ids"].tolist():
            yield f"{clause}: the ids", torch.inf, 0.0
            continue
        mask = stock["attention_mask"].bool()
        found, expected = _arguments(policy, ours, whole), _arguments(policy, _stock(policy, stock), whole)
        names = found.keys() | expected.keys()
        if not rows[0][1]:
            # The native processor writes token types for text, too: zeros, and a mask that says nothing new.
            names &= WITHOUT_IMAGES
        for name in sorted(names):
            difference = _difference(found.get(name), expected.get(name), mask)
            yield f"{clause}: {name}", difference, allowed


def refusal_of_videos(policy: Any) -> str:
    """Why a policy must not be given videos; "" if it makes of a small clip what stock makes of it."""
    refusal = policy.processing_class.state.videos.refusal
    if refusal:
        return refusal
    whole = _is_small(policy)
    try:
        for clause, ours, stock in video_batches(policy):
            if ours["input_ids"].tolist() != stock["input_ids"].tolist():
                return f"With {clause}, the policy's ids are others than the native processor's. {AS_IMAGES}"
            mask = stock["attention_mask"].bool()
            batches = [_placed(policy, batch) for batch in (ours, _stock(policy, stock))]
            found, expected = [_arguments(policy, batch, whole) for batch in batches]
            for name in sorted(found.keys() | expected.keys()):
                difference = _difference(found.get(name), expected.get(name), mask)
                if difference > TOLERANCE.get(policy.dtype, TOLERANCE_HALF):
                    return (
                        f"With {clause}, the policy does not compute what the stock model computes: {name} "
                        f"is off by {difference:.1e} of the largest value. {AS_IMAGES}"
                    )
    except Exception as error:  # whatever stock models and processors meet
        return (
            f"{type(policy).__name__} cannot be compared with the stock model on a video: "
            f"{type(error).__name__}: {error}. {AS_IMAGES}"
        )
    return ""


def _placed(policy: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.to(policy.device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


def stock_batch_effect(policy: Any) -> float:
    """How far the stock model's own logits of a row move when it is left-padded beside another one.

    Some models are off by much: their log-probs of a rollout and of a training batch disagree then.

    Returns:
        The difference as a share of the largest logit; about 1e-6 in float32 is rounding.
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
    """Why rows must not share their prompts; None if two rows with one prompt agree with each by itself.

    Where they do not, the policy's `sharing` takes its other way first.
    """
    sharing = policy.base_model.sharing
    if sharing.refusal is not None or not _is_small(policy):
        return sharing.refusal
    batch = _batch(policy, policy.processing_class, [(QUESTIONS[0], [noise(WIDE, 0)])] * 2)
    # The rows differ in their last tokens.
    batch["input_ids"][1, -2:] = batch["input_ids"][0, :2]
    apart = _outputs(policy, batch, shared=False)
    while sharing.refusal is None:
        way = sharing.way
        together = _outputs(policy, batch, shared=True)
        difference = _difference(together, apart, batch["attention_mask"].bool())
        if difference > TOLERANCE[policy.dtype]:
            reason = f"rows with one prompt differ by {difference:.1e} of the largest value"
            sharing.refuse(f"the self-check failed: {reason}")
        elif sharing.way == way:
            break
    return sharing.refusal


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
    """Whether the whole model runs: in float32, a wrong input of the decoder shows in its logits, too."""
    return policy.dtype in TOLERANCE and policy.num_parameters() <= MOST_PARAMETERS


def _key(policy: Any) -> str:
    """What a verdict is about: model class, config, processor, and who computes."""
    # Where a config was read from, and what an adapter notes in it, changes no number.
    config = {name: value for name, value in policy.config.to_diff_dict().items() if not name.startswith("_")}
    facts = [
        VERSION,
        transformers.__version__,
        f"{type(policy).__module__}.{type(policy).__qualname__}",
        str(policy.dtype),
        config,
        type(policy.processing_class).__qualname__,
        policy.processing_class.image_settings(),
        repr(policy.family),
    ]
    return hashlib.sha256(json.dumps(facts, default=repr, sort_keys=True).encode()).hexdigest()[:32]


def _batch(policy: Any, processor: Any, rows: Sequence[tuple[str, list]]) -> dict[str, Any]:
    """Prompts with images as a left-padded batch on the model's device."""
    texts = [prompt(processor, len(images), text) for text, images in rows]
    images = [images for _, images in rows] if rows[0][1] else None
    batch = processor(images=images, text=texts, padding=True, padding_side="left", return_tensors="pt")
    return {
        name: value.to(policy.device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
        if name != "labels"
    }


def _stock(policy: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What the stock model is given: pixels in its dtype, and the token types that it asks for."""
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
    """Note the tensors that the decoder is called with."""

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


def _difference(found: Any, expected: Any, mask: torch.Tensor) -> float:
    """How far two arguments are apart, as a share of the largest value; padding aside."""
    pairs = [list(tensors_in(found)), list(tensors_in(expected))]
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
