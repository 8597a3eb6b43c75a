"""`policy.chat`: from a conversation and its images to the answer's text."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..processing.conversation import fill_images
from ..processing.images.reference import is_image_list
from .eval_mode import evaluating

DEFAULT_NEW_TOKENS = 512


@torch.no_grad()
def chat(policy: Any, messages: Any, images: Any = None, **generation_kwargs: Any) -> str | list[str]:
    """Answer one conversation, or several in one batch.

    Args:
        policy: An `AutoVLMPolicy`. Dropout and gradient checkpointing are off during the call.
        messages: One conversation: a string (the user's words) or messages as TRL and transformers
            take them. Or a list of B conversations.
        images: For one conversation, an image or a list of them; for B, a list with one such entry or
            None for each. They fill empty image blocks, or go before the first user text. See
            `images.read.load_rgb` for what an image can be.
        **generation_kwargs: As for `generate`. Without a length here or in the generation config, an
            answer has at most 512 tokens.

    Returns:
        The answer's text, or B of them.

    Raises:
        ImageError: If an image is unusable, or images and image blocks differ in number.
        ValueError: If there is no conversation, `images` does not have one entry for each, or more than
            one answer is asked for.
    """
    if not isinstance(messages, Sequence) or not (messages or isinstance(messages, str)):
        expected = "a string, a list of messages, or several of these"
        raise ValueError(f"Got no conversation: {messages!r:.80}. Expected {expected}.")
    batched = not isinstance(messages, str) and not isinstance(messages[0], Mapping)
    rows = list(messages) if batched else [messages]
    if batched and [] in rows:
        raise ValueError(f"Got no message in conversation {rows.index([])}. Expected a string or messages.")
    config = generation_kwargs.get("generation_config") or policy.generation_config
    asked = generation_kwargs.get("num_return_sequences", getattr(config, "num_return_sequences", None))
    if asked not in (None, 1):
        raise ValueError("Got num_return_sequences. chat() gives one answer each; call generate() for more.")
    pictures = _per_row(images, len(rows)) if batched else [_listed(images)]
    conversations = [fill_images(_messages(row), group) for row, group in zip(rows, pictures, strict=True)]
    processing = policy.processing_class
    inputs = processing.apply_chat_template(
        conversations,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    ).to(policy.device)
    lengths = ("max_new_tokens", "max_length")
    # A generation config saved by an older transformers may lack one of them.
    if all(generation_kwargs.get(name, getattr(config, name, None)) is None for name in lengths):
        generation_kwargs["max_new_tokens"] = DEFAULT_NEW_TOKENS
    with evaluating(policy):
        output = policy.generate(**inputs, **generation_kwargs)
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    completions = sequences[:, inputs["input_ids"].shape[1] :]
    answers = [text.strip() for text in processing.batch_decode(completions, skip_special_tokens=True)]
    return answers if batched else answers[0]


def _messages(row: Any) -> Sequence[Mapping]:
    return [{"role": "user", "content": row}] if isinstance(row, str) else row


def _listed(images: Any) -> list | None:
    return images if images is None or is_image_list(images) else [images]


def _per_row(images: Any, rows: int) -> list[list | None]:
    if images is None:
        return [None] * rows
    if not isinstance(images, list | tuple) or len(images) != rows:
        number = f"{len(images)} entries" if isinstance(images, list | tuple) else type(images).__name__
        raise ValueError(
            f"Got {rows} conversations and images with {number}. Expected a list with one entry for each "
            "conversation: an image, a list of images, or None."
        )
    return [_listed(entry) for entry in images]
