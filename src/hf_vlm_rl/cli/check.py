"""`hf-vlm-rl check`: what this package makes of a model, from its config and processor, or compared."""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

from .arguments import add_revision, add_trust, hub_arguments, pixels

QUESTION = "What is it?"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.add_argument("model", help="Hub id or directory")
    add_revision(parser)
    add_trust(parser)
    parser.add_argument(
        "--weights", action="store_true", help="load the weights, too, and compare the policy with stock"
    )
    image = parser.add_mutually_exclusive_group()
    image.add_argument("--image", help="file or URL of an image, to count its tokens")
    image.add_argument(
        "--image-size", type=pixels, default=(448, 448), help="or a blank one's width x height, as 1024x768"
    )


def run(options: argparse.Namespace) -> None:
    """Say whether a model is supported, what an image costs, and what training on it would do.

    Exit status: 0 if it is supported, 1 if it is not or cannot be read.
    """
    from PIL import Image

    from ..processing.images.read import load_rgb

    image = load_rgb(options.image) if options.image else Image.new("RGB", options.image_size)
    found = facts(options.model, image, hub_arguments(options))
    compared = comparison(options.model, hub_arguments(options)) if options.weights else ()
    for name, value in itertools.chain(found, compared):
        print(f"{name + ':':<15}{value}")  # noqa: T201


def facts(source: str, image: Any, located: dict[str, Any] | None = None) -> Iterator[tuple[str, str]]:
    """What there is to say of a model, as pairs of name and value; tokens of an RGB `image` are counted.

    Raises:
        UnsupportedModelError: If it is no vision-language model.
        OSError: If its config or processor cannot be read.
    """
    import torch

    from ..loading.checkpoint import read_checkpoint
    from ..loading.meta import policy_on_meta
    from ..plan.report import parameters
    from ..plan.weights import parameter_counts
    from ..processing.images.store import ImageStore

    policy = policy_on_meta(read_checkpoint(source, located), torch.bfloat16, ImageStore())
    processing = policy.processing_class
    yield "model", f"{type(policy).__name__} (family {policy.family.model_type})"
    yield "processor", type(processing).__name__
    yield "parameters", parameters(*parameter_counts(policy, policy.family.language))
    content = [{"type": "image", "image": image}, {"type": "text", "text": QUESTION}]
    messages = [{"role": "user", "content": content}]
    encoded = processing.apply_chat_template(
        [messages], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    ids = encoded["input_ids"][0]
    tokens = list(ids).count(processing.state.placeholder_id)
    yield "image", f"{tokens} tokens for {image.width} x {image.height} pixels"
    yield "prompt", f"{len(ids)} tokens for this image and {QUESTION!r}"
    yield (
        "template",
        repr(processing.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)),
    )
    yield from _family(policy)
    yield "boxes", _boxes(policy.family.boxes)
    yield "sharing", _sharing(policy.base_model.sharing)
    yield "LoRA", _lora(policy)


def _sharing(sharing: Any) -> str:
    return sharing.refusal or sharing.unpacked or "rows that begin alike share their prompts"


def _lora(policy: Any) -> str:
    from ..policy.trained.experts import fused_experts, kinds

    config = policy.lora_config(experts=False)
    # Where PEFT would take a layer for something else, its weight is a target.
    layers = len(config.target_modules) + len(config.target_parameters or ())
    experts = fused_experts(policy, policy.family.language)
    left = f"; not {kinds(experts)} unless experts=True" if experts else ""
    return f"{layers} linear layers of the decoder{left}"


def comparison(source: str, located: dict[str, Any] | None = None) -> Iterator[tuple[str, str]]:
    """How far a policy is off its stock model on a few small images, as pairs of name and value.

    The weights are loaded in their own dtype.

    Raises:
        SelfCheckError: If they differ by more than rounding.
    """
    from ..loading.auto import AutoVLMPolicy
    from ..loading.self_check import compare, stock_batch_effect

    policy = AutoVLMPolicy.from_pretrained(source, dtype="auto", **(located or {}))
    worst = max(difference for _, difference, _ in compare(policy))
    yield "off stock", f"by {worst:.1e} of the largest value, at most"
    effect = stock_batch_effect(policy)
    told = " : log-probs of rollouts and of training can disagree" if effect > 1e-3 else ""
    yield "stock batches", f"change a row's own logits by {effect:.1e} of the largest{told}"


def _family(policy: Any) -> Iterator[tuple[str, str]]:
    """What is known of the family, and how."""
    from ..families.registry import family_for, is_built_in

    family = policy.family
    written = family_for(family.model_type)
    if is_built_in(family.model_type):
        tested = "equal to stock in this package's tests"
    else:
        tested = "compared with stock when it is loaded, or now by --weights"
    yield "family", f"{family.model_type}, {tested}"
    values = {name: getattr(family, name) for name in sorted(written.missing)}
    derived = [f"{name}{_written(value)}" for name, value in values.items() if value not in ((), False, {})]
    yield "derived", "; ".join(derived)


def _written(value: Any) -> str:
    if value is True:
        return ""
    return f"={', '.join(value) if isinstance(value, tuple | dict) else value}"


def _boxes(boxes: Any) -> str:
    if boxes is None:
        return "the makers document none; see BoxCoordinates.relative"
    return f"{boxes.syntax}, " + (f"0 to {boxes.scale}" if boxes.scale else "in pixels of the resized image")
