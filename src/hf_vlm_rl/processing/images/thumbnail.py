"""Small copies of images, for pages that stand alone."""

import base64
import io
from typing import Any

SIDE = 192  # pixels, the longer side


def thumbnails(processing: Any, tickets: Any) -> tuple[str, ...]:
    """The images of tickets, as `data:` URLs of JPEG files.

    Args:
        processing: The processing class that made the tickets.
        tickets: (N, 1 or 2), or None.
    """
    own = [] if tickets is None else tickets[:, 0].tolist()
    return tuple(_thumbnail(processing.image_store.get(ticket).image) for ticket in own)


def _thumbnail(image: Any) -> str:
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
