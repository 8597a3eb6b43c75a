"""Files of rows as others write them."""

import json

NAMES = ("cat.png", "coffee.png", "rocket.png")
IMAGE = {"type": "image", "text": None}


def jsonl(path, rows):
    """Write one row per line; strings as they are."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def listed(path, rows, **style):
    """Write a JSON list."""
    path.write_text(json.dumps(rows, ensure_ascii=False, **style), encoding="utf-8")
    return path


def llava(question, answer=None, **fields):
    """A row of LLaVA's."""
    said = [{"from": "human", "value": question}]
    said += [] if answer is None else [{"from": "gpt", "value": answer}]
    return {**fields, "conversations": said}


def text(words):
    """A block of text."""
    return {"type": "text", "text": words}


def user(*blocks):
    """A turn of the user, of blocks or strings."""
    return turn("user", *blocks)


def turn(role, *blocks):
    """A turn, of blocks or strings."""
    return {"role": role, "content": [text(each) if isinstance(each, str) else each for each in blocks]}


def pixels(row):
    """A row with its images as modes, sizes and bytes, which compare."""
    return {**row, "images": [(image.mode, image.size, image.tobytes()) for image in row["images"]]}


def sizes(row):
    """The sizes of a row's images."""
    return [image.size for image in row["images"]]
