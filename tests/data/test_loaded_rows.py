"""What the loaders read trains in TRL's own trainers as the same rows given as objects, streamed or not."""

import math

import pytest
import trl
from datasets import Dataset, IterableDataset
from packaging.version import Version

from hf_vlm_rl.data import load_messages, load_mixture
from tests.data.stock import KINDS, train
from tests.data.trained_files import as_objects, messages, mixture
from tests.trainers.runs import TWO

pytestmark = pytest.mark.trl

TRL = Version(trl.__version__)
# Rows of a batch come in another order from a stream: sums are rounded otherwise.
ROUNDING = {"rel": 2e-3, "abs": 1e-4}


@pytest.fixture
def load(tmp_path):
    """`load(kind)`: the rows that a trainer takes, from files."""

    def read(kind, **options):
        columns, _, _ = KINDS[kind]
        options |= {"cache_dir": tmp_path / "cache"}
        folder = tmp_path / f"files{len(list(tmp_path.iterdir()))}"
        if columns:
            return load_messages(messages(folder, *columns), **options)
        return load_mixture(mixture(folder), **options)

    return read


def skip_where_trl_cannot(kind, streamed):
    if kind == "KTO" and Version("1.8") > TRL:
        pytest.skip("KTOTrainer takes no images before TRL 1.8")
    if streamed and kind in ("GRPO", "RLOO") and Version("1.12") > TRL:
        pytest.skip("GRPOTrainer and RLOOTrainer of TRL 1.0 refuse streams")


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("kind", KINDS)
def test_files_train_as_the_rows_in_them(kind, family, load, policy_for, tmp_path):
    skip_where_trl_cannot(kind, streamed=False)
    dataset = load(kind)
    assert [len(row["images"]) for row in dataset] == [1, 2, 0]
    steps = train(kind, policy_for(family), dataset, tmp_path / "out")
    assert len(steps) == 2
    assert all(math.isfinite(value) for step in steps for value in step)
    assert steps[0][1] > 0  # the gradient's norm
    objects = Dataset.from_list(as_objects(*KINDS[kind][0]))
    assert steps == train(kind, policy_for(family), objects, tmp_path / "out")


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_trains_as_the_files(kind, family, load, policy_for, tmp_path):
    skip_where_trl_cannot(kind, streamed=True)
    stream = load(kind, streaming=True)
    assert isinstance(stream, IterableDataset)
    streamed = train(kind, policy_for(family), stream, tmp_path / "out")
    loaded = train(kind, policy_for(family), load(kind), tmp_path / "out")
    assert streamed[0] == pytest.approx(loaded[0], **ROUNDING)
    assert len(streamed) == 2
