"""Handwritten digits (scikit-learn, 1,797 scans of 8 x 8 pixels) as datasets of PIL images."""

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

QUESTION = "Which digit is this?"
SIDE = 32  # pixels, width and height of an image


def image_of(scan: np.ndarray) -> Image.Image:
    """Turn one scan, (8, 8) values from 0 to 16, into a `SIDE` x `SIDE` RGB image."""
    pixels = np.round(scan * 255 / 16).astype(np.uint8)
    return Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")


def _dataset(scans: np.ndarray, digits: np.ndarray) -> datasets.Dataset:
    """One row per scan; columns `prompt` (messages), `image` (PIL), `answer` ("0" to "9")."""
    columns = {
        "prompt": [[{"role": "user", "content": QUESTION}]] * len(scans),
        "image": [image_of(scan) for scan in scans],
        "answer": [str(digit) for digit in digits],
    }
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def load_splits(warm_up: int, held_out: int, seed: int) -> dict[str, datasets.Dataset]:
    """Split the scans into three disjoint datasets, each with its share of every digit.

    Args:
        warm_up: Rows of the dataset `warm_up`. It alone has a column `completion` (messages), the
            target of supervised training.
        held_out: Rows of the dataset `held_out`, which no training may see.
        seed: Decides which scan goes where.

    Returns:
        `warm_up`, `held_out` and, with all the other scans, `graded`: the answer of a graded row
        is never a target, it only goes to the reward function.
    """
    scans, digits = load_digits(return_X_y=True)
    scans = scans.reshape(-1, 8, 8)
    training, tested = train_test_split(
        np.arange(len(digits)), test_size=held_out, stratify=digits, random_state=seed
    )
    graded, warm = train_test_split(training, test_size=warm_up, stratify=digits[training], random_state=seed)
    rows = {"warm_up": warm, "graded": graded, "held_out": tested}
    splits = {name: _dataset(scans[index], digits[index]) for name, index in rows.items()}
    targets = [[{"role": "assistant", "content": text}] for text in splits["warm_up"]["answer"]]
    splits["warm_up"] = splits["warm_up"].add_column("completion", targets)
    return splits
