"""Conversations and photos for the tests of the processing class."""

from tests.images import photo

FAMILIES = ("internvl", "qwen2_5_vl", "llava", "paligemma", "idefics3")
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
    return batch["pixel_values"][:, 0].tolist() if "pixel_values" in batch else []
