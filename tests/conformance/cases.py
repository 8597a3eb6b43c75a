"""Rows that every family is tested on, and where a clause cannot hold for one."""

from hf_vlm_rl.families.tiny import FAMILIES
from tests.images import photo

ALL = FAMILIES

# Clause of the contract -> family -> why it does not hold there. Nothing else is left out.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "rows without images": {
        "paligemma": "its native processor refuses a prompt without an image; the policy accepts "
        "plain ids, but there is no native text-only prompt to compare with",
    },
}


def families(clause: str) -> list[str]:
    """The families that a clause holds for."""
    return [family for family in ALL if family not in EXCEPTIONS.get(clause, {})]


def user(text: str, *images) -> list[dict]:
    """One user message with its images in blocks, before the text."""
    blocks = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": text}]}]


def one_image() -> list[dict]:
    return user("What is this?", photo("astronaut", (224, 224)))


def two_images() -> list[dict]:
    wide, cat = photo("coffee", (224, 84)), photo("cat", (140, 140))
    return user("Compare the first picture with the second one, please.", wide, cat)


def no_image() -> list[dict]:
    return user("Say hello to me.")


def mixture(family: str) -> list[list[dict]]:
    """No image, one and several in one batch, of different lengths."""
    rows = [one_image(), two_images(), user("And this?", photo("rocket", (84, 224)))]
    return rows if family in EXCEPTIONS["rows without images"] else [*rows[:2], no_image(), rows[2]]


def images_of(messages: list[dict]) -> list:
    """The images of a conversation, in order."""
    return [block["image"] for message in messages for block in message["content"] if "image" in block]


def tickets(processing_class, rows: list, side: str = "left", **kwargs) -> dict:
    """Rows as a padded batch with tickets beside the ids."""
    return processing_class.apply_chat_template(
        rows,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": side, **kwargs},
    )


def native(processor, rows: list, side: str = "left", typed: bool = False) -> dict:
    """The same call of the stock processor, which gives pixels; `typed`: and the tokens' types."""
    batch = tickets(processor, rows, side, **({"return_mm_token_type_ids": True} if typed else {}))
    batch.pop("labels", None)  # PaliGemma's processor always adds them
    return batch
