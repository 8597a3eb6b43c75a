"""Images of a processing class: stored, given tickets, and processed natively, each once."""

from collections.abc import Mapping
from typing import Any

import PIL.Image
import torch

from ..errors import ImageError
from .images.options import native_options, noted_options
from .images.processed import ProcessedImage
from .images.reference import is_image_list
from .native_call import image_inputs, images_kwargs_asked, images_kwargs_merged
from .state import ProcessingState


class ImageTickets:
    """Mixed into a processing class, before the native processor."""

    tokenizer: Any
    state: ProcessingState

    def processed(self, ticket: int) -> ProcessedImage:
        """What the native image processor makes of a ticket's image; processed once, then cached.

        Raises:
            TicketError: If the store does not have the image.
        """
        key = (ticket, self.image_settings())
        cached = self.state.processed.get(key)
        if cached is None:
            source = self.state.store.source(ticket)
            if source != ticket:
                return self.processed(source)
            stored = self.state.store.get(ticket)
            cached = self._process_one(stored.image, stored.options)
            self.state.processed.put(key, cached)
        return cached

    def image_settings(self) -> str:
        """Everything the native image processor's result depends on besides the image, comparable."""
        return f"{self._image_processor_settings()}{self._default_images_kwargs()}"

    def _image_processor_settings(self) -> str:
        values = vars(self.image_processor).items()
        return repr([(name, value) for name, value in values if not name.startswith("_")])

    def _process_images(self, images: Any, **images_kwargs: Any) -> tuple[dict, list[str]]:
        if self.state.whole:
            return super()._process_images(images, **images_kwargs)
        # The native __call__ asks this for pixels and replacement texts: answer with tickets.
        flat = [image for row in images for image in (row if is_image_list(row) else [row])]
        tickets = self.put_images(flat, images_kwargs)
        inputs = {
            "pixel_values": torch.tensor(tickets, dtype=torch.int64).unsqueeze(1),
            "num_patches": [1] * len(flat),
        }
        return inputs, [self.processed(ticket).replacement for ticket in tickets]

    def put_images(self, images: list, images_kwargs: Mapping[str, Any]) -> list[int]:
        """Store images with the options in which a call differs from one that asks for nothing."""
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
        image, own = native_options(image, noted_options(image), self.state.family, self.image_processor)
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
            out = super().__call__(
                images=[[image] * copies], text=[one], images_kwargs=options, return_tensors="pt"
            )
            # Native inputs are made for a batch, not for an image.
            inputs = {} if self.state.family.native_inputs else image_inputs(out)
            replacement, ids = "", out["input_ids"][0].tolist()
        else:
            arguments = self._default_images_kwargs() | options | {"return_tensors": "pt"}
            inputs, (replacement, *_) = super()._process_images([[image] * copies], **arguments)
            ids = self.tokenizer(replacement, add_special_tokens=False)["input_ids"] * copies
        if copies > 1:
            inputs = {
                key: value[:1] if isinstance(value, torch.Tensor) else value for key, value in inputs.items()
            }
        tokens, least = ids.count(self.state.placeholder_id) // copies, self.state.family.least_tokens
        if tokens < least:
            raise ImageError(
                f"An image of {image.width} x {image.height} pixels gives {tokens} image tokens. "
                f"Expected at least {least}; enlarge it or drop the row."
            )
        return ProcessedImage(dict(inputs), replacement, tokens)

    def _default_images_kwargs(self) -> dict[str, Any]:
        """What the native `__call__` asks of the image processor when the caller asks for nothing."""
        settings = self._image_processor_settings()
        defaults = self.state.images_defaults.get(settings)
        if defaults is None:
            asked = None if self.state.whole else images_kwargs_asked(self.native(), self.state.one_image)
            defaults = images_kwargs_merged(self, {}) if asked is None else asked
            self.state.images_defaults[settings] = defaults
        return dict(defaults)
