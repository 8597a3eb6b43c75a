"""The ticket of an image, a hash of its pixels, and the error for two images with the same ticket."""

import hashlib
import struct

import PIL.Image

from ...errors import TicketError
from .disk import content_hash, name


def image_ticket(image: PIL.Image.Image) -> int:
    """The ticket of an RGB image: a signed 64-bit BLAKE2b hash of its size and pixels."""
    return content_hash(struct.pack("<II", image.width, image.height), image.tobytes())


def image_digest(image: PIL.Image.Image) -> bytes:
    """A SHA-256 hash of an RGB image's size and pixels: nobody can make two images that share it."""
    return hashlib.sha256(struct.pack("<II", image.width, image.height) + image.tobytes()).digest()


def collision(ticket: int) -> TicketError:
    """The error that says that two images, or two rows, have one ticket."""
    return TicketError(
        f"Two images, or two rows, have the ticket {name(ticket)}, a 64-bit hash. That does not happen by "
        "chance: somebody made one to be taken for the other. Remove both from the dataset."
    )
