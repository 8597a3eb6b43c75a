"""Conversations and photos for the tests of the processing class."""

from hf_vlm_rl.processing.images.hashes import image_ticket
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets
from tests.images import photo

# Big enough for every family's ticket; three shapes, so that rows differ in length.
CAT, COFFEE, ROCKET = photo("cat", (150, 150)), photo("coffee", (210, 130)), photo("rocket", (130, 230))


def user(*parts) -> list[dict]:
    """A one-turn conversation: strings are texts, None an empty image block, others images."""
    blocks = []
    for part in parts:
        if part is None:
            blocks.append({"type": "image"})
        elif isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        else:
            blocks.append({"type": "image", "image": part})
    return [{"role": "user", "content": blocks}]


def text_of(processing, *parts) -> str:
    """The rendered prompt of `user(*parts)`."""
    return processing.apply_chat_template(user(*parts), add_generation_prompt=True)


def tickets(batch) -> list[int]:
    """The tickets of a batch, in order."""
    return [ticket for ticket, _ in decode_tickets(batch.get("pixel_values")) or []]


def same_images(store, found, images) -> bool:
    """Whether tickets stand for these images; a ticket may also say how to process its image."""
    return [image_ticket(store.get(ticket).image) for ticket in found] == [
        image_ticket(image) for image in images
    ]
