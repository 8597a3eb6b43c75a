"""Two ranks: rows encoded by neither of them, rewards averaged over both."""

import pytest

from tests.scoring.runs import rows_of
from tests.trainers.distributed.launch import on_two_ranks

pytestmark = pytest.mark.ppo


@pytest.mark.slow
def test_two_ranks_train_on_rows_that_a_third_process_encoded(policy_for, checkpoint, tmp_path):
    rows_of(policy_for("internvl"), "internvl", answer=["0", "1", "2", "3"]).save_to_disk(tmp_path / "rows")
    on_two_ranks("tests.scoring.ranked", checkpoint("internvl"), tmp_path / "rows", tmp_path, timeout=300)
    for rank in (0, 1):
        assert (tmp_path / f"rank-{rank}").read_text() == "[1.5, 1.5]"
