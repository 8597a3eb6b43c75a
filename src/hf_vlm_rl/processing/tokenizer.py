"""The processing class: a checkpoint's own processor that is also shaped like a tokenizer.

Trainers get from it the native text (same ids, same placeholder runs) and, in place of pixel
tensors, tickets in the one layout that every TRL version slices by image (see `tickets.beside_ids`).

It is saved as the native processor: same files, same `processor_class`.
"""

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Self

import numpy as np
from transformers import BatchFeature, ProcessorMixin

from .._retype import Retyped
from ..compat import merged_arguments
from ..errors import ImageError
from .callers import check_rollout_function
from .conversation import check_no_placeholder, fill_images, normalize, options_by_image, without_images
from .deal_images import load_row, media_by_row
from .encoded_rows import CHECKSUM, checked
from .ids.tokenizer import no_text
from .image_tickets import ImageTickets, ids_alone
from .images.options import marked, unmarked
from .images.store import ImageStore
from .images.stored import RowNote
from .padding import copied, first_row, pad_batch
from .state import ProcessingState
from .tickets.beside_ids import decode_tickets, encode_tickets
from .tickets.in_ids import TicketCodec
from .tokenizer_shape import TokenizerShape
from .tool_calling import enable_tools
from .videos.request import Video, VideoTicket

# Outputs that tokenizers add on request. `__call__` drops all others that a native processor returns.
TEXT_OUTPUTS = ("offset_mapping", "text_replacement_offsets", "special_tokens_mask")
PAD_ARGUMENTS = ("padding", "padding_side", "pad_to_multiple_of", "return_tensors")
TEXT_ARGUMENTS = ("add_special_tokens", "truncation", "max_length", "return_offsets_mapping")


class VLMTokenizer(TokenizerShape, ImageTickets, Retyped):
    """Mixed into a native processor by `AutoVLMPolicy`; see the module docstring."""

    tokenizer: Any
    image_token: str
    _vlm: ProcessingState

    @property
    def state(self) -> ProcessingState:
        """What it knows beyond the native processor: family, placeholders, caches."""
        return self._vlm

    @state.setter
    def state(self, state: ProcessingState) -> None:
        self._vlm = state

    def replace_state(self, state: ProcessingState) -> Self:
        """A shallow copy of this object that knows `state` instead."""
        twin = copy.copy(self)
        twin.state = state
        return twin

    def native(self) -> ProcessorMixin:
        """The native processor: it gives pixels, and shares this object's tokenizer and settings."""
        twin: Any = copy.copy(self)
        twin.__class__ = self._stock_class
        return twin

    @property
    def image_store(self) -> ImageStore:
        """The `ImageStore` that holds the images of the tickets this object emits."""
        return self._vlm.store

    @property
    def codec(self) -> TicketCodec:
        """Writes tickets into ids (`encode_prompt`) and reads them back."""
        return self._vlm.codec

    def __call__(
        self, images: Any = None, text: str | Sequence[str] | None = None, videos: Any = None, **kwargs: Any
    ) -> BatchFeature:
        """Tokenize rows of text, with each image placeholder expanded as the model expects.

        Args:
            images: None, one image, a flat list (assigned to the rows by their placeholders), or
                one list (or None) per row. See `images.read.load_rgb` for what an image can be.
            text: One string or a list of B strings.
            videos: None, or one list of videos (or None) per row; see `videos.request.ACCEPTED` for what a
                video can be. Their tickets are written into the ids. A video in `images` is a dict
                `{"video": ..., "fps": ...}`, and its ticket travels in `pixel_values`, as those of images.
            **kwargs: What the native processor takes. Without `return_tensors`, ids are lists.

        Returns:
            `input_ids` and `attention_mask`, (B, L) or B lists; if `images` is not None, for N >= 0
            images `pixel_values` uint8 (N, 15), a ticket each, and `image_grid_thw` int64 (N, 3) ones;
            `tickets.beside_ids.decode_tickets` reads them.

        Raises:
            ImageError: If a row's images and placeholders differ in number, or an image is
                unusable. The message names the row.
            UnsupportedModelError: If there is a video and the model takes none.
        """
        if text is None:
            raise no_text(self)
        rows = [text] if isinstance(text, str) else list(text)
        if not rows:
            raise ValueError("Got an empty list of texts. Pass at least one row.")
        rows, options = zip(*(unmarked(row, self._vlm.placeholder) for row in rows), strict=True)
        row_media = media_by_row(images, videos, list(rows), self._vlm.placeholder, self._vlm.videos)
        text_kwargs = dict(kwargs.pop("text_kwargs", None) or {})
        kwargs = kwargs | text_kwargs
        padding = {key: kwargs.pop(key) for key in PAD_ARGUMENTS if key in kwargs}
        encoded: list[dict[str, Any]] = []
        before: tuple[str, list] | None = None
        for index, (row, media) in enumerate(zip(rows, row_media, strict=True)):
            store_video = partial(self._store_video, kwargs)
            content = row, load_row(media, index, options[index], self.load_rgb, store_video)
            # Trainers repeat a prompt for each of its completions: equal pixels need no second hash.
            repeated = before is not None and content == before
            encoded.append(copied(encoded[-1]) if repeated else self._encode_row(index, *content, kwargs))
            before = content
        columns = {key: [row[key] for row in encoded] for key in encoded[0] if key != "tickets"}
        batch = pad_batch(self.tokenizer, columns, kwargs.get("max_length"), **padding)
        if images is not None or any(row["tickets"] for row in encoded):
            # Also if no row has an image: with an image column, TRL asks for pixel_values.
            batch |= encode_tickets([carried for row in encoded for carried in row["tickets"]])
        return batch

    def apply_chat_template(self, conversation: Any, *args: Any, **kwargs: Any) -> Any:
        """The native `apply_chat_template`, for one conversation or a list of them.

        Content may be a string or blocks. An image block holds its image under `image`, `url`,
        `path`, `base64` or `image_url`, in any form `images.read.load_rgb` reads, and may have options of
        this image alone (`images.options`). If this returns a text, the text holds them for `__call__`.

        Raises:
            ImageError: If a text contains this model's placeholder, an image has an option that this family
                does not have, or as `__call__` does.
            ValueError: If a trainer calls that has use_vllm and no rollout function, and there are images.
        """
        conversations, batched = normalize(conversation)
        check_rollout_function(self, conversations)
        options = [options_by_image(messages) for messages in conversations]
        for row, messages in enumerate(conversations):
            check_no_placeholder(messages, self._vlm.placeholder_texts, row)
            self._check_options(row, options[row])
        conversation = conversations if batched else conversations[0]
        with ids_alone(kwargs.get("return_dict") is False):
            output = super().apply_chat_template(conversation, *args, **kwargs)
        if isinstance(output, str):
            return marked(output, self._vlm.placeholder, options[0])
        if isinstance(output, list) and isinstance(output[0], str):
            return [
                marked(text, self._vlm.placeholder, each) for text, each in zip(output, options, strict=True)
            ]
        return output  # ids, whose tickets have the options

    def encode_prompt(
        self,
        messages: Sequence[Mapping],
        images: Sequence | None = None,
        videos: Sequence | None = None,
        **columns: Any,
    ) -> dict[str, Any]:
        """One prompt as ids that carry their images, for trainers that take only `input_ids`.

        Args:
            messages: A conversation. Image blocks without an image are filled from `images`; if
                there are no blocks, the images go before the first user text. A conversation that ends
                with an assistant's message is encoded with its answer, for reward models.
            images: The images of the row, in order.
            videos: Its videos, in order, likewise for video blocks.
            **columns: JSON-like values (ground truth, ...) that travel with the row: inside the
                tickets of its images, or, if it has none, under its checksum.

        Returns:
            `input_ids` and `attention_mask`, each of length L: those of the native prompt, with
            a ticket written into each image's run; `ids_checksum`, which `pad` compares and drops.
            Images and columns are kept on disk (`image_store`).

        Raises:
            ImageError: As `apply_chat_template`.
            TicketError: If an image has too few tokens in a row to hold a ticket; if columns cannot
                be kept.
            ValueError: If the prompt contains the pad token, which trainers mask by its id.
        """
        conversation = fill_images(fill_images(messages, images), videos, "video")
        for block in (block for message in conversation for block in message.get("content") or ()):
            if "video" in block:
                block["video"] = block["video"].carried_beside()
        answered = bool(conversation) and conversation[-1].get("role") == "assistant"
        prompt = conversation[:-1] if answered else conversation
        ids, tickets = self._encode_conversation(prompt, add_generation_prompt=True)
        if self.pad_token_id in ids:
            raise ValueError(
                f"The prompt contains {self.pad_token!r}, which is also the pad token; a trainer would "
                "mask it. Expected a pad token of its own: set processing_class.pad_token to a special "
                "token that the chat template does not write."
            )
        opening, tail = ids, self._vlm.behind(ids) if tickets else None
        if answered:
            ids, tickets = self._encode_conversation(conversation, add_generation_prompt=False)
            # Some templates open a thought for `generate`, and leave it out before an answer.
            same = takewhile(lambda pair: pair[0] == pair[1], zip(opening, ids, strict=False))
            opening = [token for token, _ in same]
        note = RowNote(columns, without_images(prompt), tail)
        key = None if tickets else self._vlm.store.text_prompts.keep(self.codec.salt, opening, note)
        # By these tickets, the images are processed already; by those that `keep` returns, not yet.
        lengths = [self.processed(ticket).tokens for ticket in tickets]
        ids = self.codec.write(ids, [self._vlm.keep(ticket, note) for ticket in tickets], lengths)
        checksum = self.codec.checksum(ids) if key is None else key
        return {"input_ids": ids, "attention_mask": [1] * len(ids), CHECKSUM: checksum}

    def pad(self, encoded_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The tokenizer's `pad`. Rows of `encode_prompt` are first compared with their checksums.

        Raises:
            TicketError: If the ids of a row were truncated or edited, or made for another model.
        """
        return self.tokenizer.pad(checked(self, encoded_inputs), *args, **kwargs)

    def enable_tools(self) -> Self:
        """Write and read tool calls, also where the chat template does not; see `tool_calling.enable_tools`.

        Returns:
            This object.

        Raises:
            UnsupportedModelError: If the chat template cannot write them.
        """
        enable_tools(self)
        self._vlm.ids_tokenizer = None  # its next user gets one that has them, too
        return self

    def decode(self, token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """The native `decode`; tickets inside the ids read as the placeholders they replace."""
        return super().decode(self._vlm.erased(token_ids), *args, **kwargs)

    def batch_decode(self, sequences: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The native `batch_decode`; tickets inside the ids read as placeholders."""
        return super().batch_decode(self._vlm.erased(sequences), *args, **kwargs)

    def _encode_conversation(self, messages: list[dict], **kwargs: Any) -> tuple[list[int], list[int]]:
        encoded = self.apply_chat_template([messages], tokenize=True, return_dict=True, **kwargs)
        tickets = [ticket for ticket, _ in decode_tickets(encoded.get("pixel_values")) or []]
        return encoded["input_ids"][0], tickets

    def _encode_row(self, index: int, text: str, media: list, kwargs: dict) -> dict[str, Any]:
        videos = [item for item in media if isinstance(item, VideoTicket)]
        images = [item for item in media if not isinstance(item, VideoTicket)]
        try:
            if media or not self._vlm.family.needs_image:
                # Row by row: native processors disagree on nested lists with empty rows.
                # Native processors count an array as a video; the ticket is its only number.
                stand_ins = [np.full((1, 1, 1, 1), video.ticket, dtype=np.int64) for video in videos]
                carried = {"videos": [stand_ins]} if videos else {}
                call = self.native() if self._vlm.whole else super().__call__
                out = call(images=[images] if images else None, text=[text], **carried, **kwargs)
            else:
                text_only = {key: kwargs[key] for key in TEXT_ARGUMENTS if key in kwargs}
                out = self.tokenizer([text], **text_only)
        except ValueError as error:  # ImageError included
            raise ImageError(str(error), index) from error
        except TypeError as error:
            if not images or not kwargs.get("truncation"):
                raise
            # Idefics3's processor looks for the end of an image that is no longer there.
            raise ImageError(
                f"truncation to {kwargs.get('max_length')} tokens cut an image. Raise max_length or drop the "
                "row.",
                index,
            ) from error
        row = {key: first_row(out[key]) for key in TEXT_OUTPUTS if key in out}
        row["input_ids"] = first_row(out["input_ids"])
        row["attention_mask"] = [1] * len(row["input_ids"])
        tickets = []
        if images and self._vlm.whole:
            tickets = self.put_images(images, merged_arguments(self, kwargs)["images_kwargs"])
        elif images:
            # Native processors may return the tickets of videos among those of images.
            of_videos = {video.ticket for video in videos}
            tickets = [ticket for ticket in out["pixel_values"][:, 0].tolist() if ticket not in of_videos]
        waiting = iter(tickets)
        tickets = [item.ticket if isinstance(item, VideoTicket) else next(waiting) for item in media]
        row["tickets"] = self._carried(index, row["input_ids"], tickets)
        if not all(video.beside for video in videos):
            lengths = [self.processed(ticket).tokens for ticket in tickets]
            inside = [isinstance(item, VideoTicket) and not item.beside for item in media]
            written = [item.ticket if within else None for item, within in zip(media, inside, strict=True)]
            row["input_ids"] = self.codec.write(row["input_ids"], written, lengths)
            row["tickets"] = [
                ticket for ticket, within in zip(row["tickets"], inside, strict=True) if not within
            ]
        return row

    def _store_video(self, kwargs: Mapping[str, Any], video: Video) -> int:
        """Store a video of a call with these arguments, and return its ticket."""
        asked = merged_arguments(self, kwargs)["videos_kwargs"]
        return self._vlm.videos.ticket(self.native(), video, asked)
