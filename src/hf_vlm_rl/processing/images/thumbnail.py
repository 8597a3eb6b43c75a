"""Small copies of images, for pages that stand alone."""

import base64
import io
from collections.abc import Iterable

import PIL.Image

from .store import ImageStore
from .stored import StoredVideo

SIDE = 320  # pixels, the longer side: about 20 kB a photograph


def thumbnails(store: ImageStore, tickets: Iterable[int]) -> tuple[str, ...]:
    """The images of tickets, and the first frames of videos, as `data:` URLs of JPEG files."""
    return tuple(thumbnail(_first_frame(store, store.get(ticket).image)) for ticket in tickets)


def _first_frame(store: ImageStore, image: PIL.Image.Image | StoredVideo) -> PIL.Image.Image:
    return store.frame(image.frames[0]) if isinstance(image, StoredVideo) else image


def thumbnail(image: PIL.Image.Image) -> str:
    """A small copy of an RGB image, as the `data:` URL of a JPEG file."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
