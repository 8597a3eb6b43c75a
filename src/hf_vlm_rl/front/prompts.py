"""A prompt as a trainer and as vLLM take it, and whether both are the same prompt.

A trainer takes ids in which each image has as many placeholders as it has features. vLLM takes ids with one
placeholder for each image, and the images, and expands the placeholders itself. It would expand a whole run
once more, and answer another prompt without a word.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import PIL.Image

from ..errors import ImageError, TicketError, UnsupportedModelError
from ..processing.conversation import has_video
from ..processing.ids.tokenizer import IdsTokenizer
from ..processing.images.options import unmarked
from ..processing.images.stored import StoredImage, StoredVideo
from ..processing.tickets.beside_ids import decode_tickets
from ..processing.tokenizer import VLMTokenizer

NO_VIDEOS = (
    "a prompt has a video, and prompts for vLLM carry images. Expected use_vllm=False, or the video's frames "
    "as images."
)


@dataclass(frozen=True)
class EnginePrompt:
    """One prompt.

    Attributes:
        ids: As the trainer takes it; every image expanded.
        short_ids: As the engine takes it; one placeholder an image.
        images: Upright RGB images, in the order of their placeholders.
        lengths: Placeholders of each image in `ids`.
        carried: Each image's ticket, as `beside_ids.encode_tickets` takes it.
    """

    ids: list[int]
    short_ids: list[int]
    images: tuple[PIL.Image.Image, ...] = ()
    lengths: tuple[int, ...] = ()
    carried: tuple[tuple[int, int | None], ...] = ()


def encode_prompts(
    processing: VLMTokenizer, prompts: Sequence[str | Sequence[Mapping]], template: Mapping[str, Any]
) -> list[EnginePrompt]:
    """Encode B prompts: conversations with their images inside, or plain texts, which have none.

    `template` is what a trainer passes to `apply_chat_template` besides the conversation.

    Raises:
        ImageError: If an image cannot be used, or has options of its own. The message names the row.
    """
    return [_encode(processing, row, prompt, template) for row, prompt in enumerate(prompts)]


def read_prompt(tokenizer: IdsTokenizer, row: int, ids: Sequence[int]) -> EnginePrompt:
    """The prompt of a row of ids with tickets inside, as `policy.tokenizer` makes them.

    Raises:
        ImageError: If an image has options of its own, or is a video's. The message names the row.
        TicketError: If a ticket is damaged, cut or unknown.
    """
    processing, row_ids = tokenizer.processing_class, list(ids)
    if not any(token in processing.codec.placeholders for token in row_ids):
        return EnginePrompt(row_ids, row_ids)
    try:
        clean, places = tokenizer.places(row_ids)
        images = tuple(_image(processing.image_store.get(ticket)) for ticket, _, _ in places)
    except ImageError as error:
        raise error.at_row(row) from error
    except TicketError as error:
        raise TicketError(f"Row {row}: {error}") from error
    written = processing.tokenizer(processing.state.placeholder, add_special_tokens=False)["input_ids"]
    short_ids, position = list[int](), 0
    for _, start, stop in places:
        short_ids += [*clean[position:start], *written]
        position = stop
    return EnginePrompt(
        ids=clean,
        short_ids=[*short_ids, *clean[position:]],
        images=images,
        lengths=tuple(processing.processed(ticket).tokens for ticket, _, _ in places),
        carried=tuple((ticket, None) for ticket, _, _ in places),
    )


def _encode(
    processing: VLMTokenizer, row: int, prompt: str | Sequence[Mapping], template: Mapping[str, Any]
) -> EnginePrompt:
    try:
        if isinstance(prompt, str):
            ids = processing(text=[prompt])["input_ids"][0]
            return EnginePrompt(ids, ids)
        if has_video(prompt):
            raise ImageError(NO_VIDEOS)
        template = {**template, "add_generation_prompt": True}
        encoded = processing.apply_chat_template([prompt], tokenize=True, return_dict=True, **template)
        ids = encoded["input_ids"][0]
        carried = decode_tickets(encoded.get("pixel_values")) or []
        if not carried:
            return EnginePrompt(ids, ids)
        (text,) = processing.apply_chat_template([prompt], tokenize=False, **template)
        text, _ = unmarked(text, processing.state.placeholder)
        images = tuple(_image(processing.image_store.get(ticket)) for ticket, _ in carried)
    except ImageError as error:
        raise error.at_row(row) from error
    return EnginePrompt(
        ids=ids,
        short_ids=_tokenize(processing, text),
        images=images,
        lengths=tuple(processing.processed(ticket).tokens for ticket, _ in carried),
        carried=tuple(carried),
    )


def _image(stored: StoredImage) -> PIL.Image.Image:
    if isinstance(stored.image, StoredVideo):
        raise ImageError(NO_VIDEOS)
    # How an image is processed in company, vLLM sees by itself.
    options = {name: value for name, value in stored.options.items() if name != "alone"}
    if options:
        raise ImageError(
            f"an image has the options {options}, and vLLM processes all images alike. Give them to "
            "from_pretrained for all images, or set use_vllm=False."
        )
    return stored.image


def _tokenize(processing: VLMTokenizer, text: str) -> list[int]:
    """The ids of a rendered prompt, with special tokens where `apply_chat_template` has them."""
    bos = processing.tokenizer.bos_token
    written = bos is not None and text.startswith(bos)
    return processing.tokenizer(text, add_special_tokens=not written)["input_ids"]


def check_same_prompt(
    processing: VLMTokenizer, prompt: EnginePrompt, seen: Sequence[int] | None, row: int
) -> None:
    """Compare a prompt as an engine expanded it with that which the trainer will score, token by token.

    Raises:
        ImageError: If a token differs. The message names the row.
        UnsupportedModelError: If the engine did not say what it saw.
    """
    if seen is None:
        raise UnsupportedModelError(
            f"Row {row}: vLLM did not say which prompt it saw. Expected `prompt_token_ids`, which 0.28 and "
            "newer return."
        )
    if list(seen) == prompt.ids:
        return
    pairs = itertools.zip_longest(prompt.ids, seen)
    at, (own, other) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    placeholder = processing.state.placeholder_id
    raise ImageError(
        f"vLLM saw another prompt than the policy: {len(seen)} tokens, {list(seen).count(placeholder)} of "
        f"images, against {len(prompt.ids)} and {prompt.ids.count(placeholder)}; they differ first at "
        f"token {at}: {_named(processing, other)} against {_named(processing, own)}. Expected the same "
        "tokens. Give both the same processor: save the policy's processing class into the checkpoint "
        "that vLLM loads, or start the server with its --mm-processor-kwargs. If it is the same, this "
        "family is not served by vLLM as transformers has it: set use_vllm=False.",
        row,
    )


def _named(processing: VLMTokenizer, token: int | None) -> str:
    return "the end" if token is None else repr(processing.tokenizer.convert_ids_to_tokens(token))
