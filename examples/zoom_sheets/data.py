"""Sheets of 8 x 8 handwritten digits (scikit-learn's scans), and what looks at one cell of them."""

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ..demo_digits.data import SIDE, image_of

ROWS, COLUMNS = "abcdefgh", "12345678"
WARM_UP, HELD_OUT = 300, 450  # scans of 1,797
QUESTION = "Which digit is in cell {cell}?"


def place_of(cell: str) -> tuple[int, int] | None:
    """Row and column, from 0, of a cell as b7; None if there is no such cell."""
    if len(cell) != 2 or cell[0] not in ROWS or cell[1] not in COLUMNS:
        return None
    return ROWS.index(cell[0]), COLUMNS.index(cell[1])


class Sheet:
    """An environment of TRL: the sheet of one question, and a tool to look closer.

    The model sees the sheet as a thumbnail, in which a digit is 4 x 4 pixels.
    """

    def reset(self, image, **columns) -> None:
        """Take a row's sheet."""
        self._sheet = image

    def zoom(self, cell: str) -> list:
        """Look at a cell.

        Args:
            cell: Row and column, as b7.
        """
        place = place_of(cell)
        if place is None:
            raise ValueError(f"There is no cell {cell!r}.")
        top, left = (number * SIDE for number in place)
        return [{"type": "image", "image": self._sheet.crop((left, top, left + SIDE, top + SIDE))}]


def load_splits(sheets: dict[str, int], seed: int) -> dict[str, datasets.Dataset]:
    """Sheets with a question each, in datasets with `prompt`, `image`, `cell`, `answer` and all `digits`.

    Args:
        sheets: How many of them `warm_up` (of `WARM_UP` scans), `graded` and `held_out` (of `HELD_OUT`) have;
            no two datasets share a scan.
        seed: Decides which scan goes where.
    """
    scans, digits = load_digits(return_X_y=True)
    scans = scans.reshape(-1, 8, 8)
    training, held_out = train_test_split(
        np.arange(len(digits)), test_size=HELD_OUT, stratify=digits, random_state=seed
    )
    graded, warm = train_test_split(training, test_size=WARM_UP, stratify=digits[training], random_state=seed)
    pools, draw = {"warm_up": warm, "graded": graded, "held_out": held_out}, np.random.default_rng(seed)
    return {name: _dataset(scans, digits, pools[name], size, draw) for name, size in sheets.items()}


def _dataset(scans, digits, pool, size: int, draw) -> datasets.Dataset:
    columns = {"prompt": [], "image": [], "cell": [], "answer": [], "digits": []}
    for _ in range(size):
        chosen = draw.choice(pool, len(ROWS) * len(COLUMNS))
        sheet = Image.new("RGB", (SIDE * len(COLUMNS), SIDE * len(ROWS)))
        for place, scan in enumerate(chosen):
            row, column = divmod(place, len(COLUMNS))
            sheet.paste(image_of(scans[scan]), (column * SIDE, row * SIDE))
        row, column = divmod(int(draw.integers(len(chosen))), len(COLUMNS))
        cell = ROWS[row] + COLUMNS[column]
        columns["prompt"].append([{"role": "user", "content": QUESTION.format(cell=cell)}])
        columns["image"].append(sheet)
        columns["cell"].append(cell)
        columns["answer"].append(str(digits[chosen[row * len(COLUMNS) + column]]))
        columns["digits"].append("".join(map(str, digits[chosen])))
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
