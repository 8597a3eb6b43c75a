"""Two ranks with weights spread over both: ranks with and without images do not wait for each other."""

import pytest

from .launch import on_two_ranks

pytestmark = [pytest.mark.trl, pytest.mark.slow]


@pytest.mark.parametrize(
    ("family", "trained"),
    [
        ("internvl", "decoder"),
        ("internvl", "everything"),
        ("qwen2_5_vl", "everything"),
        # Alone, their rows share by running modules twice.
        ("qwen3_5", "decoder"),
        ("mistral_large4", "decoder"),
    ],
)
def test_uneven_batches_give_the_gradients_and_answers_of_one_process(family, trained, checkpoint, tmp_path):
    on_two_ranks("tests.trainers.distributed.sharded", checkpoint(family), tmp_path, trained)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["rank-0", "rank-1"]
