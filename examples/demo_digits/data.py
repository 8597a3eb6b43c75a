"""scikit-learn's handwritten digits (1,797 scans of 8 x 8 pixels) as three datasets of PIL images."""

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

QUESTION = "Which digit is this?"
SIDE = 32  # pixels of an image handed to the model


def _image(scan: np.ndarray) -> Image.Image:
    """Turn one scan, (8, 8) floats from 0 to 16, into a 32 x 32 RGB image."""
    pixels = np.round(scan * 255 / 16).astype(np.uint8)
    return Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")


def _dataset(scans: np.ndarray, digits: np.ndarray) -> datasets.Dataset:
    """Columns `prompt` (messages), `image` (PIL) and `answer` ("0" to "9"), one row per scan."""
    rows = {
        "prompt": [[{"role": "user", "content": QUESTION}]] * len(scans),
        "image": [_image(scan) for scan in scans],
        "answer": [str(digit) for digit in digits],
    }
    return datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())


def load_splits(warm_up: int, held_out: int, seed: int) -> dict[str, datasets.Dataset]:
    """Split the scans, class by class, into disjoint parts.

    Args:
        warm_up: Rows that get a `completion` column: the answer is their training target.
        held_out: Rows that no training ever sees.
        seed: Decides which scan goes where.

    Returns:
        `warm_up`, `held_out` and, with all the other scans, `graded`: answers only checked by the reward.
    """
    scans, digits = load_digits(return_X_y=True)
    scans = scans.reshape(-1, 8, 8)
    rest, test = train_test_split(
        np.arange(len(digits)), test_size=held_out, stratify=digits, random_state=seed
    )
    graded, warm = train_test_split(rest, test_size=warm_up, stratify=digits[rest], random_state=seed)
    splits = {"warm_up": warm, "graded": graded, "held_out": test}
    parts = {name: _dataset(scans[rows], digits[rows]) for name, rows in splits.items()}
    targets = [[{"role": "assistant", "content": answer}] for answer in parts["warm_up"]["answer"]]
    parts["warm_up"] = parts["warm_up"].add_column("completion", targets)
    return parts
