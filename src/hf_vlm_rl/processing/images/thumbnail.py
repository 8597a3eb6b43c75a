"""Small copies of images, for pages that stand alone."""

import base64
import io
from collections.abc import Iterable

import PIL.Image

from .store import ImageStore

SIDE = 192  # pixels, the longer side


def thumbnails(store: ImageStore, tickets: Iterable[int]) -> tuple[str, ...]:
    """The images of tickets, as `data:` URLs of JPEG files.

    Args:
        store: Where the images are.
        tickets: Theirs.
    """
    return tuple(_thumbnail(store.get(ticket).image) for ticket in tickets)


def _thumbnail(image: PIL.Image.Image) -> str:
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
