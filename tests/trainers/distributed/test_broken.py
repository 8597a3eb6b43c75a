"""Two ranks: the error of a truncated image names the row of the dataset, not that of the rank's batch."""

import re

import pytest

from .launch import on_two_ranks

pytestmark = [pytest.mark.trl, pytest.mark.slow]


def test_a_ranks_error_names_the_datasets_row_and_the_file(checkpoint, tmp_path):
    on_two_ranks("tests.trainers.distributed.broken", checkpoint("internvl"), tmp_path)
    batches = set()
    for rank in (0, 1):
        for decode in (True, False):
            said = (tmp_path / f"rank-{rank}-{decode}").read_text()
            row = re.search(rf"{re.escape(str(tmp_path))}/{rank}-(\d)\.png': image file is truncated", said)[
                1
            ]
            if decode:
                assert said.startswith(f"ImageError: Row {row}: ")
            else:  # the policy's own error begins with the row of the batch, which has two
                assert re.match("ImageError: Row [01], image 0: ", said)
                assert said.endswith(f" It is in row {row} of the train_dataset.")
            batches.add((decode, row))
    assert len(batches) == 4  # each rank has its own
