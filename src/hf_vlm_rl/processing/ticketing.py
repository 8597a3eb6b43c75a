"""The image processor that trainers see: a call of it returns tickets.

Trainers of tools that return images call `processing_class.image_processor` on all images of a batch, and
give the model what it returns. Everything else of it, attributes, settings and what is saved, is the native
image processor's.
"""

from typing import Any

from transformers import BatchFeature

from .._retype import Retyped, retyped_class


class TicketingImageProcessor(Retyped):
    """Mixed into an image processor's class; see the module docstring."""

    _processing: Any  # a processing class

    @classmethod
    def _members(cls, stock: type) -> dict[str, Any]:
        # A slot, because `bind` shares `__dict__` with the native image processor.
        return {"__slots__": ("_processing",)}

    def __call__(self, images: Any, *args: Any, return_tensors: Any = None, **kwargs: Any) -> BatchFeature:
        """Tickets of images, in their order; `processing_class.native_image_processor` returns pixels.

        `return_tensors` is ignored: tickets are tensors. `kwargs` are those of the native image processor.
        """
        if args:
            raise TypeError(f"Got {len(args)} arguments beside the images. Expected keywords.")
        return BatchFeature(self._processing.tickets_for_trainer(images, kwargs))

    def bind(self, processing: Any, attributes: dict[str, Any]) -> None:
        """Give tickets of `processing`, and share `attributes` with the native image processor."""
        self._processing = processing
        self.__dict__ = attributes


def ticketing(native: Any, processing: Any) -> Any:
    """The image processor `native` as trainers of `processing` see it."""
    kind = retyped_class(type(native), TicketingImageProcessor)  # type: ignore[arg-type]  # classes have hashes
    image_processor = kind.__new__(kind)
    image_processor.bind(processing, vars(native))
    return image_processor
