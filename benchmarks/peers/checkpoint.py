"""A checkpoint of random weights and rows with images, the same files for every system.

`python -m benchmarks.peers.checkpoint FOLDER --vocabulary 32768`
"""

import argparse
import json
from pathlib import Path

from transformers import GenerationConfig

from ..models import image, stock
from ..trainers import QUESTION

MODEL, TILES, ROWS = "qwen2_5_vl", 7, 8


def write(folder: Path, vocabulary: int, name: str = MODEL) -> None:
    """Write `model/`, images and `rows.jsonl`.

    Args:
        folder: Where to.
        vocabulary: Words that the model can say.
        name: One of `SIZES`, of Qwen2.5-VL.
    """
    model, processor = stock(name, TILES, "cpu", vocabulary=vocabulary)
    tokens = processor.tokenizer
    model.generation_config = GenerationConfig(
        eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id, do_sample=True
    )
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    lines = []
    for number in range(ROWS):
        (picture,) = image(name, TILES, number)
        path = folder / f"{number}.png"
        picture.save(path)
        messages = [{"role": "user", "content": f"<image>{QUESTION}"}]
        lines.append(json.dumps({"messages": messages, "images": [str(path)]}) + "\n")
    (folder / "rows.jsonl").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=int, required=True)
    given = parser.parse_args()
    write(given.folder.resolve(), given.vocabulary)


if __name__ == "__main__":
    main()
