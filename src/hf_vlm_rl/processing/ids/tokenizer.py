"""The tokenizer for trainers that know only texts and ids: its texts and its ids carry tickets.

It is the checkpoint's own tokenizer, re-typed. `with_tickets` and `apply_chat_template` write each image into
the text as a mark (see `tickets.in_texts`), and whatever tokenizes that text gets ids with the tickets inside
(see `tickets.in_ids`). A trainer sees a language model.

Shapes: B rows of L tokens.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..._retype import Retyped, overriding, retype
from ...errors import ImageError, UnsupportedModelError
from ..callers import calling_trainer, columns_of_images
from ..conversation import fill_images, normalize
from ..encoded_rows import checked
from ..images.options import check_options, options_of
from ..tickets.in_texts import TextTickets
from .backend import TextBackend
from .columns import ASKED_OPTIONS, NO_VIDEOS, carry, image_of
from .fronts import check_servers, check_tools
from .texts import HOW_TO, TicketTexts

# Arguments for a text with images. Others, such as offsets, are about the text before images are expanded.
ASKED = frozenset(
    {
        "add_special_tokens",
        "padding_strategy",
        "truncation_strategy",
        "max_length",
        "pad_to_multiple_of",
        "padding_side",
        "return_tensors",
        "return_attention_mask",
        "return_token_type_ids",
        "return_length",
        "verbose",
    }
)
WRONG_KIND = (
    "Trainers that know only texts and ids take a tokenizer. Expected processing_class=policy.tokenizer and "
    f"{HOW_TO}."
)
# The label that losses of transformers leave out.
IGNORED = -100


if TYPE_CHECKING:  # the class that it is mixed into
    _StockTokenizer = PreTrainedTokenizerBase
else:
    _StockTokenizer = object


class IdsTokenizer(Retyped, _StockTokenizer):
    """Mixed into the checkpoint's tokenizer by `make_ids_tokenizer`; see the module docstring."""

    _processing: Any
    _marks: TextTickets
    _texts: TicketTexts

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        @overriding(stock._encode_plus)
        def _encode_plus(self: Any, kwargs: dict[str, Any]) -> Any:
            if not any(self._texts.own(kwargs.get(name)) for name in ("text", "text_pair")):
                return stock._encode_plus(self, **kwargs)
            return self._encode_with_images(kwargs)

        @overriding(stock.apply_chat_template)
        def apply_chat_template(self: Any, kwargs: dict[str, Any]) -> Any:
            return self._apply_chat_template(**kwargs)

        return {"_encode_plus": _encode_plus, "apply_chat_template": apply_chat_template}

    def __reduce_ex__(self, protocol: Any) -> tuple:
        self._check_caller()  # a trainer pickles it for the workers that tokenize
        return super().__reduce_ex__(protocol)

    @property
    def processing_class(self) -> Any:
        """The `VLMTokenizer` whose tickets these are."""
        return self._processing

    @property
    def backend_tokenizer(self) -> Any:
        """The backend, which refuses texts with tickets: only this tokenizer knows what they stand for."""
        stock: Any = super()  # only tokenizers with a backend are re-typed
        return TextBackend(stock.backend_tokenizer, self._marks)

    def with_tickets(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row in TRL's columns with its images inside its texts, for `Dataset.map`.

        Args:
            row: Conversations with image blocks, or texts with the model's placeholder for an image; the
                images in the blocks, or in an `image` or `images` column.

        Returns:
            The columns that hold texts, and no column of images: let `map` remove that
            (`remove_columns="images"`). Contents of messages are strings. Images are kept on disk.

        Raises:
            ImageError: If images and places for them differ in number, or an image is unusable.
        """
        return carry(row, self.mark, self._processing.state.placeholder)

    def mark(self, image: Any) -> str:
        """The text that stands for an image. A tool that returns it, or a text with it, returns the image.

        Args:
            image: As in a message block. It is kept on disk.

        Raises:
            ImageError: If the image is unusable, or asks for an option that the family does not have.
        """
        return self._marks.write(self._put(image))

    def without_marks(self, text: str) -> tuple[str, list[Any]]:
        """A text without its marks, and what these stand for, in order: images, or videos.

        Reward functions of trainers that know only texts get prompts with marks.

        Raises:
            TicketError: If a mark is damaged, or the store has no image for it.
        """
        parts = list(self._marks.split(text))
        store = self._processing.state.store
        images = [store.get(part).image for part in parts if isinstance(part, int)]
        return "".join(part for part in parts if isinstance(part, str)), images

    def text_labels(self, input_ids: Sequence[int]) -> list[int]:
        """Labels for training on a whole row: its ids, and -100 at the tokens of images.

        Args:
            input_ids: L ids with tickets.
        """
        codec = self._processing.codec
        return [IGNORED if token in codec.placeholders else token for token in codec.erase(list(input_ids))]

    def places(self, input_ids: Sequence[int]) -> tuple[list[int], list[tuple[int, int, int]]]:
        """The clean ids of a row of L, and its images' tickets and places; see `TicketTexts.places`."""
        return self._texts.places(list(input_ids))

    def pad(self, encoded_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The stock `pad`. Rows of `encode_prompt` are first compared with their checksums."""
        return super().pad(checked(self._processing, encoded_inputs), *args, **kwargs)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """The stock `decode`, with a mark in the text for each ticket in the ids.

        `skip_special_tokens` keeps the marks: text that is encoded again has its images.
        """
        rows = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids  # tensors and arrays
        if isinstance(rows, list | tuple) and rows and isinstance(rows[0], list | tuple | torch.Tensor):
            return [self.decode(row, skip_special_tokens, **kwargs) for row in rows]
        options = {"skip_special_tokens": skip_special_tokens, **kwargs}
        placeholder = self._processing.state.placeholder_id
        decode: Callable[..., Any] = super().decode
        parts: list = [token_ids]
        if isinstance(rows, list | tuple) and placeholder in rows:
            parts = self._texts.parts([int(token) for token in rows])
        texts = []
        for part in parts:
            text = part if isinstance(part, str) else decode(part, **options)
            # A mark that ordinary tokens spell is escaped. The placeholder of a cut image stays one.
            spelled = not isinstance(part, str) and not (isinstance(part, list) and placeholder in part)
            texts.append(self._marks.escape(text) if spelled else text)
        return "".join(texts)

    def batch_decode(self, sequences: Any, *args: Any, **kwargs: Any) -> list[str]:
        """`decode` for B rows."""
        return [self.decode(row, *args, **kwargs) for row in sequences]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """The stock method."""
        return self._processing.tokenizer.convert_tokens_to_string(tokens)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        """Save the native processor, which has this tokenizer: a policy can be loaded from the folder."""
        return self._processing.save_pretrained(save_directory, *args, **kwargs)

    def take(self, processing: Any) -> None:
        """Set what this tokenizer has beyond the stock one; `make_ids_tokenizer` calls it once."""
        self._processing = processing
        self._marks = TextTickets(str(self.convert_ids_to_tokens(processing.state.placeholder_id)))
        self._texts = TicketTexts(processing, self._marks)
        self.chat_template = processing.chat_template

    def _apply_chat_template(
        self,
        conversation: Any,
        tools: list | None = None,
        chat_template: str | None = None,
        tokenize: bool = True,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        self._check_caller()
        in_blocks, batched = normalize(conversation)
        conversations, tickets = self._with_empty_blocks(in_blocks)
        names = ("padding", "truncation", "max_length", "return_tensors")
        encoding = {name: kwargs.pop(name) for name in names if kwargs.get(name)}
        template = kwargs | {"tools": tools, "chat_template": self.get_chat_template(chat_template, tools)}
        if tokenize and return_assistant_tokens_mask:
            if encoding:
                raise ValueError(
                    f"Got return_assistant_tokens_mask=True with {encoding}. Expected none of these; pad and "
                    "cut what this returns."
                )
            store = self._processing.state.store
            images = [[image_of(store, ticket) for ticket in own] for own in tickets]
            rows = self._with_assistant_masks(list(map(fill_images, conversations, images)), template)
            return rows if batched else BatchEncoding({name: values[0] for name, values in rows.items()})
        texts = self._processing.apply_chat_template(conversations, tokenize=False, **template)
        written = self._processing.state.placeholder
        texts = [self._marks.fill(text, written, own) for text, own in zip(texts, tickets, strict=True)]
        first = texts[0] if texts else ""
        if not batched:
            texts = first
        if not tokenize:
            return texts
        # As processors do it: a template that leaves bos to the tokenizer gets it from there.
        written_bos = self.bos_token is not None and first.startswith(self.bos_token)
        options = {"add_special_tokens": not written_bos, **encoding, **(tokenizer_kwargs or {})}
        encoded = self(texts, **options)
        return encoded if return_dict else encoded["input_ids"]

    def _with_assistant_masks(self, conversations: list[list[dict]], template: dict) -> BatchEncoding:
        encoded = [
            self._processing.apply_chat_template(
                [messages], tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **template
            )
            for messages in conversations
        ]
        rows = [self._texts.written(list(row["input_ids"][0]), row) for row in encoded]
        columns = {
            "input_ids": rows,
            "attention_mask": [[1] * len(row) for row in rows],
            "assistant_masks": [list(row["assistant_masks"][0]) for row in encoded],
        }
        return BatchEncoding(columns)

    def _with_empty_blocks(self, conversations: list[list[dict]]) -> tuple[list[list[dict]], list[list[int]]]:
        """Conversations with an empty block for each mark and image; and the tickets of each, in order."""
        emptied, tickets = [], []
        for row, messages in enumerate(conversations):
            own: list[int] = []
            emptied.append([self._message(message, row, own) for message in messages])
            tickets.append(own)
        return emptied, tickets

    def _message(self, message: dict, row: int, tickets: list[int]) -> dict:
        if message.get("content") is None:
            return message
        blocks = []
        for block in message["content"]:
            text = block.get("text") if block.get("type") == "text" else None
            if block.get("type") not in ("image", "text"):
                raise ImageError(f"Got a block of type {block.get('type')!r}. {NO_VIDEOS}", row)
            if block.get("type") == "image":
                tickets.append(self._ticket_of(block, row))
                blocks.append({"type": "image"})
            elif not text:
                blocks.append(block)
            for part in self._marks.split(text or ""):
                if isinstance(part, int):
                    tickets.append(part)
                    blocks.append({"type": "image"})
                else:
                    blocks.append(block | {"text": part})
        return message | {"content": blocks}

    def _ticket_of(self, block: Mapping[str, Any], row: int) -> int:
        if "image" not in block:
            raise ImageError(
                "an image block has no image: trainers that know only texts drop columns of images. "
                f"Expected {HOW_TO}.",
                row,
            )
        trainer = calling_trainer()
        if trainer is not None:
            raise ImageError(
                f"{type(trainer).__name__} passes an image block to a tokenizer. Such trainers join and cut "
                f"texts, and drop other blocks. Expected {HOW_TO}.",
                row,
            )
        return self._put(block["image"])

    def _put(self, image: Any) -> int:
        state, options = self._processing.state, options_of(image)
        check_options(options, state.family, self._processing.native_image_processor)
        asked = {ASKED_OPTIONS: options} if options else None
        return state.store.put(self._processing.load_rgb(image), asked, keep=True)

    def _encode_with_images(self, kwargs: dict[str, Any]) -> BatchEncoding:
        text = kwargs.pop("text")
        asked = sorted(name for name, value in kwargs.items() if value and name not in ASKED)
        if asked:
            raise ValueError(
                f"Got {asked} for a text with images, whose tokens are not those of its characters. Expected "
                f"no more than {sorted(ASKED)}."
            )
        self._check_caller()
        batched = isinstance(text, list | tuple)
        # `truncation_strategy` is a member of transformers' enumeration.
        cuts = getattr(kwargs.get("truncation_strategy"), "value", "do_not_truncate") != "do_not_truncate"
        limit = kwargs.get("max_length") if cuts else None
        special = kwargs.get("add_special_tokens", True)
        rows = [
            self._texts.encode(index, each, special, limit, self.truncation_side)
            for index, each in enumerate(text if batched else [text])
        ]
        return_tensors = kwargs.get("return_tensors")
        batch: dict[str, list] = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
        types = kwargs.get("return_token_type_ids")
        if types or (types is None and "token_type_ids" in self.model_input_names):
            batch["token_type_ids"] = [[0] * len(row) for row in rows]
        if kwargs.get("return_length"):
            batch["length"] = [len(row) for row in rows]
        names = ("max_length", "pad_to_multiple_of", "padding_side")
        options = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        padded = dict(self.pad(batch, padding=kwargs.get("padding_strategy", False), **options))
        wanted = kwargs.get("return_attention_mask")
        if wanted is False or (wanted is None and "attention_mask" not in self.model_input_names):
            del padded["attention_mask"]
        if not batched and return_tensors is None:
            return BatchEncoding({name: values[0] for name, values in padded.items()})
        return BatchEncoding(padded, tensor_type=return_tensors)

    def _check_caller(self) -> None:
        """Refuse trainers that would lose images.

        Raises:
            ImageError: If a calling trainer has a column of images.
            ImportError: If it has tools, and its TRL does not run them with a server.
            ValueError: If it sends ids to a server that knows nothing of tickets, or its tools would end it.
        """
        trainer = calling_trainer()
        if trainer is None:
            return
        kind, columns = type(trainer).__name__, columns_of_images(trainer)
        if columns:
            raise ImageError(
                f"{kind} has a dataset with the columns {columns} and a tokenizer, and drops such columns. "
                f"Expected {HOW_TO}."
            )
        check_servers(trainer, self._processing, self._processing.state.fronts)
        check_tools(trainer)


def no_text(processing: Any) -> ValueError:
    """The error of a processor that was called without a text, as trainers do that expect a tokenizer."""
    trainer = calling_trainer()
    if trainer is None:
        return ValueError("Got no text. Pass text with one placeholder per image.")
    return ValueError(
        f"{type(trainer).__name__} calls {type(processing).__name__} with no text. {WRONG_KIND}"
    )


def make_ids_tokenizer(processing: Any) -> IdsTokenizer:
    """The tokenizer of a processing class, for trainers that know only texts and ids.

    Raises:
        UnsupportedModelError: If the model's prompts attend in both directions.
    """
    if processing.state.family.prefix_attention:
        raise UnsupportedModelError(
            "The tokens of a prompt of this model attend in both directions, and ids alone do not say where "
            "the prompt ends. Expected processing_class=policy.processing_class (GRPO, RLOO, DPO, KTO, SFT), "
            "or rows of encode_prompt (PPO, Reward)."
        )
    tokenizer = retype(copy.deepcopy(processing.tokenizer), IdsTokenizer)
    tokenizer.take(processing)
    return tokenizer
