"""A processing class stores each image under a ticket, and has it processed natively once."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any

import PIL.Image
import torch

from .._scoped import scoped
from ..compat import merged_arguments
from ..errors import ImageError, UnsupportedModelError
from .images.native_rgb import native_rgb
from .images.options import check_options, native_options, note_options, noted_options, options_of
from .images.processed import ProcessedImage
from .images.read import load_rgb
from .images.reference import as_list, is_image_list
from .images.stored import StoredVideo
from .native_call import image_inputs, images_kwargs_asked
from .state import ProcessingState
from .ticketing import ticketing
from .tickets.beside_ids import encode_tickets
from .videos.request import is_video

# True while a caller asks for ids alone, with no image that a model will encode: TRL tries templates so.
_ids_alone: ContextVar[bool] = ContextVar("hf_vlm_rl_ids_alone", default=False)

# Types of a processor's settings (`image_seq_len`, ...); the rest are its parts.
_PLAIN = (bool, int, float, str, list, tuple, dict)


def ids_alone(alone: bool) -> AbstractContextManager[None]:
    """A context in which, if `alone`, images may be smaller than the model can encode."""
    return scoped(_ids_alone, alone)


class ImageTickets:
    """Mixed into a processing class, before the native processor."""

    tokenizer: Any
    state: ProcessingState
    native: Callable[[], Any]  # the native processor

    @property
    def image_processor(self) -> Any:
        """The native image processor, except that a call of it returns tickets (`ticketing`)."""
        return ticketing(self.native_image_processor, self)

    @image_processor.setter
    def image_processor(self, image_processor: Any) -> None:
        vars(self)["image_processor"] = image_processor

    @property
    def native_image_processor(self) -> Any:
        """The checkpoint's own image processor, which gives pixels."""
        return vars(self)["image_processor"]

    def load_rgb(self, image: Any) -> PIL.Image.Image:
        """Decode an image as `images.read.load_rgb`, and convert it as the native image processor does."""
        asked = self._default_images_kwargs().get("do_convert_rgb")
        return load_rgb(image, partial(native_rgb, self.native_image_processor, asked))

    def tickets_for_trainer(self, images: Any, images_kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Tickets of images whose prompts are tokenized already, in the tensors that `__call__` returns.

        `images` is one image, a list, or lists, in the order of their placeholders.

        Raises:
            ImageError: If an image is unusable.
            UnsupportedModelError: If what the model makes of an image depends on its prompt, too.
        """
        family = self.state.family
        if family.prefix_attention or family.alone_differs:
            raise UnsupportedModelError(
                f"Got images without their prompts, for a {family.model_type} model, in which "
                + (
                    "a token sees the whole prompt, so that it matters where that ends."
                    if family.prefix_attention
                    else "an image has other tokens when it is the only one of a conversation."
                )
                + " Expected a family without that for tools that return images."
            )
        flat = [image for entry in as_list(images) for image in as_list(entry)]
        if any(map(is_video, flat)):
            raise UnsupportedModelError("Got a video without its prompt. Expected images from tools.")
        images = [note_options(self.load_rgb(image), options_of(image)) for image in flat]
        tickets = self.put_images(images, images_kwargs)
        patches = [self._patches(self.processed(ticket).tokens) for ticket in tickets]
        return encode_tickets([(ticket, None) for ticket in tickets], patches)

    def _patches(self, tokens: int) -> int:
        """How many rows of `pixel_values` TRL expects for an image of so many tokens.

        After tools have returned images, TRL counts the ids of one of these words. It expects merge_size x
        merge_size rows for each, and trains without the images if their number differs.
        """
        words = ("<|image_pad|>", "<|image|>")
        known = (self.tokenizer.convert_tokens_to_ids(word) for word in words)
        counted = next((token for token in known if token != self.tokenizer.unk_token_id), None)
        per_token = getattr(self.native_image_processor, "merge_size", 2) ** 2
        if counted == self.state.placeholder_id:
            return tokens * per_token
        if per_token == 1:
            raise UnsupportedModelError(
                f"{type(self.native_image_processor).__name__} has merge_size=1, and the model's image token "
                f"is none of {words}: a trainer would take images that tools return for cut off. Expected "
                "another family for such tools."
            )
        return 1

    def processed(self, ticket: int) -> ProcessedImage:
        """What the native image processor makes of a ticket's image; processed once, then cached.

        Raises:
            ImageError: If it has fewer tokens than the model can encode.
            TicketError: If the store does not have the image.
        """
        key = (ticket, self.image_settings())
        cached = self.state.processed.get(key)
        if cached is None:
            source = self.state.store.source(ticket)
            if source != ticket:
                return self.processed(source)
            stored = self.state.store.get(ticket)
            if isinstance(stored.image, StoredVideo):
                cached = self.state.videos.process(self.native(), stored.image, stored.options)
            else:
                cached = self._process_one(stored.image, stored.options)
            self.state.processed.put(key, cached)
        least = self.state.family.least_tokens
        if cached.tokens < least and not _ids_alone.get():
            image = self.state.store.get(ticket).image
            size = None if isinstance(image, StoredVideo) else image.size
            what = "A video" if size is None else f"An image of {size[0]} x {size[1]} pixels"
            raise ImageError(
                f"{what} gives {cached.tokens} image tokens. "
                f"Expected at least {least}; enlarge it or drop the row."
            )
        return cached

    def image_settings(self) -> str:
        """All settings that the pixels and the text of an image depend on, as a string to compare."""
        videos = self.state.videos.settings(self)
        return f"{self._native_settings()}{self._default_images_kwargs()}{videos}"

    def _native_settings(self) -> str:
        """Settings of the image processor, and those of the processor, which writes an image's text."""
        of_text = [(name, value) for name, value in vars(self).items() if isinstance(value, _PLAIN)]
        values = [*vars(self.native_image_processor).items(), *of_text]
        return repr([each for each in values if not each[0].startswith("_") and each[0] != "chat_template"])

    def _process_images(self, images: Any, **images_kwargs: Any) -> tuple[dict, list[str]]:
        if self.state.whole:
            return self._natively(images, images_kwargs)
        # The native __call__ asks this for pixels and replacement texts: answer with tickets.
        flat = [image for row in images for image in (row if is_image_list(row) else [row])]
        tickets = self.put_images(flat, images_kwargs)
        inputs = {
            "pixel_values": torch.tensor(tickets, dtype=torch.int64).unsqueeze(1),
            "num_patches": [1] * len(flat),
        }
        return inputs, [self.processed(ticket).replacement for ticket in tickets]

    def _process_videos(self, videos: Any, **videos_kwargs: Any) -> tuple[dict, list[str]]:
        # As `_process_images`; what `_encode_row` gives the native __call__ are arrays of one ticket each.
        tickets = [int(video.item()) for row in videos for video in row]
        inputs = {"pixel_values_videos": torch.tensor(tickets, dtype=torch.int64).view(-1, 1, 1)}
        return inputs, [self.processed(ticket).replacement for ticket in tickets]

    def _natively(self, images: Any, images_kwargs: Mapping[str, Any]) -> tuple[dict, list[str]]:
        """Pixels of images, and the text that stands for each, from the native processor."""
        return self.native()._process_images(images, **images_kwargs)

    def put_images(self, images: list, images_kwargs: Mapping[str, Any]) -> list[int]:
        """Store images with the options of the call that differ from the defaults; returns their tickets."""
        defaults = self._default_images_kwargs()
        options = {
            key: value
            for key, value in images_kwargs.items()
            if key != "return_tensors" and (key not in defaults or defaults[key] != value)
        }
        if self.state.family.alone_differs and len(images) > 1:
            options["alone"] = False
        return [self._store_one(image, options) for image in images]

    def _store_one(self, image: PIL.Image.Image, options: Mapping[str, Any]) -> int:
        image, own = native_options(
            image, noted_options(image), self.state.family, self.native_image_processor
        )
        twice = sorted(name for name in own if options.get(name, own[name]) != own[name])
        if twice:
            raise ImageError(
                f"got {', '.join(twice)} for an image by itself and for all images of the call. Give one."
            )
        return self.state.store.put(image, {**options, **own})

    def _process_one(self, image: Any, options: Mapping[str, Any]) -> ProcessedImage:
        options = dict(options)
        copies = 1 if options.pop("alone", True) else 2
        if self.state.whole:
            one = self.state.one_image.replace(self.state.placeholder, self.state.placeholder * copies)
            out = self.native()(
                images=[[image] * copies], text=[one], images_kwargs=options, return_tensors="pt"
            )
            # With `native_inputs`, the model gets tensors of a whole batch (`call_on_ids`), not of one image.
            inputs = {} if self.state.family.native_inputs else image_inputs(out)
            replacement, ids = "", out["input_ids"][0].tolist()
        else:
            arguments = self._default_images_kwargs() | options | {"return_tensors": "pt"}
            inputs, (replacement, *_) = self._natively([[image] * copies], arguments)
            ids = self.tokenizer(replacement, add_special_tokens=False)["input_ids"] * copies
        if copies > 1:
            inputs = {
                key: value[:1] if isinstance(value, torch.Tensor) else value for key, value in inputs.items()
            }
        return ProcessedImage(dict(inputs), replacement, ids.count(self.state.placeholder_id) // copies)

    def _default_images_kwargs(self) -> dict[str, Any]:
        """What the native `__call__` passes to the image processor if its caller sets no argument."""
        settings = self._native_settings()
        defaults = self.state.images_defaults.get(settings)
        if defaults is None:
            asked = None if self.state.whole else images_kwargs_asked(self.native(), self.state.one_image)
            defaults = merged_arguments(self, {})["images_kwargs"] if asked is None else asked
            self.state.images_defaults[settings] = defaults
        return dict(defaults)

    def _check_options(self, row: int, options: list[dict]) -> None:
        for index, each in enumerate(options):
            try:
                check_options(each, self.state.family, self.native_image_processor)
            except ImageError as error:
                raise ImageError(str(error), row, f"image {index}") from error

    def _carried(self, row: int, ids: list[int], tickets: list[int]) -> list[tuple]:
        expected = sum(self.processed(ticket).tokens for ticket in tickets)
        count = sum(ids.count(placeholder) for placeholder in self.state.codec.placeholders)
        if count != expected:
            raise ImageError(
                f"{count} image tokens where its {len(tickets)} images have {expected}. Either its text "
                "contains the placeholder literally (rephrase it), or truncation cut an image (raise "
                "max_length).",
                row,
            )
        if not self.state.family.prefix_attention:
            return [(ticket, None) for ticket in tickets]
        tail = self.state.behind(ids) if tickets else 0
        return [(ticket, tail) for ticket in tickets]
