"""The golden cases: what is on disk, and the conversations behind it."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

DATA = Path(__file__).parents[2] / "golden" / "internvl"
NAMES = ("tiny-internvl2_5-internlm2", "tiny-internvl2_5-qwen2", "tiny-internvl2_5-vit6b-style")
INTERNLM2, QWEN2, VIT6B = NAMES
COLUMNS = slice(None, None, 4)  # the logits that the files keep

# Prompts that chat() accepts and the processor cannot write: all tiles in one <img> block.
NOT_BY_BLOCKS = "combined_images"


@dataclass(frozen=True)
class Case:
    """One golden prompt of a checkpoint."""

    checkpoint: str
    name: str

    def __str__(self) -> str:
        return f"{self.checkpoint.removeprefix('tiny-internvl2_5-')}-{self.name}"

    @functools.cached_property
    def data(self) -> dict:
        return read(self.checkpoint, f"cases/{self.name}.json")

    @functools.cached_property
    def arrays(self) -> dict:
        return dict(np.load(DATA / self.checkpoint / "cases" / f"{self.name}.npz"))

    @property
    def max_tiles(self) -> set[int]:
        return {image["max_num"] for image in self.data["images"]}

    @property
    def images(self) -> list[Image.Image]:
        return [photo(image["file"]) for image in self.data["images"]]

    def ids(self, completion: bool = True) -> torch.Tensor:
        return torch.tensor([self.data["input_ids"] + (self.data["completion_ids"] if completion else [])])

    def messages(self) -> list[dict]:
        """The conversation, with image blocks where the original's questions say <image>."""
        images = self.images
        question = self.data["question"]
        if images and not self.data["history"] and "<image>" not in question:
            question = f"<image>\n{question}"  # as chat() does
        messages = []
        for asked, answered in self.data["history"]:
            messages += [user(asked, images), {"role": "assistant", "content": answered}]
        return [*messages, user(question, images)]


def read(checkpoint: str, name: str):
    return json.loads((DATA / checkpoint / name).read_text(encoding="utf-8"))


def photo(name: str) -> Image.Image:
    return Image.open(DATA / "images" / name)


def directory(checkpoint: str) -> Path:
    return DATA / checkpoint / "checkpoint"


def user(text: str, images: list) -> dict:
    """A user message; takes one image off `images` for every `<image>` and newline of the text."""
    first, *rest = text.split("<image>\n")
    content = [{"type": "text", "text": first}] if first else []
    for part in rest:
        content.append({"type": "image", "image": images.pop(0)})
        content += [{"type": "text", "text": part}] if part else []
    return {"role": "user", "content": content}


def expanded(text: str, case: Case) -> str:
    """The prompt with every image written out, as the tokenizer sees it."""
    first, *rest = text.split("<IMG_CONTEXT>")
    for tiles, part in zip(case.data["num_patches_per_image"], rest, strict=True):
        first += f"<img>{'<IMG_CONTEXT>' * (case.data['num_image_token'] * tiles)}</img>{part}"
    return first


def chat_cases() -> list[Case]:
    """Every case that has a chat() result."""
    files = sorted(DATA.glob("*/cases/*.json"))
    cases = [Case(file.parts[-3], file.stem) for file in files if not file.stem.endswith(".grads")]
    return [case for case in cases if "chat" in case.data]
