"""Rows in TRL's columns, and rewards that differ between completions."""

from hf_vlm_rl.rewards import text_of
from tests.images import photo

OPTIONS = {"max_new_tokens": 5, "batch_size": 3}


def user(content):
    return [{"role": "user", "content": content}]


def mixture():
    """One image, none, plain text, an image inside the message, two images of different sizes."""
    cat, cup = photo("cat", (112, 112)), photo("coffee", (160, 64))
    blocks = [{"type": "image", "image": cup}, {"type": "text", "text": "And this?"}]
    return [
        {"prompt": user("What is it?"), "images": [cat], "answer": "a"},
        {"prompt": user("Say hello to the user, please, in a friendly way."), "images": [], "answer": "e"},
        {"prompt": "Once upon a time", "images": None, "answer": "i"},
        {"prompt": user(blocks), "images": None, "answer": "o"},
        {"prompt": user("Compare them."), "images": [cat, cup], "answer": "u"},
    ]


def short(completions, **_):
    """1 or 0: an even number of characters."""
    return [float(len(text_of(completion)) % 2 == 0) for completion in completions]


def starts(completions, answer, **_):
    """The share of letters; no value for the row "i"."""
    texts = [text_of(completion) for completion in completions]
    return [
        None if of == "i" else sum(char.isalpha() for char in text) / max(1, len(text))
        for text, of in zip(texts, answer, strict=True)
    ]
