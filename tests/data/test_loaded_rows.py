"""What the loaders read trains in TRL's own trainers as the same rows given as objects, streamed or not."""

import math
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset, Image, List
from packaging.version import Version

from hf_vlm_rl import ImageError
from hf_vlm_rl.data import from_dataset, load_image_folder, load_messages, load_mixture
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets
from tests.data.stock import KINDS, train
from tests.data.trained_files import as_objects, messages, mixture
from tests.images import photo
from tests.trainers.runs import TWO

pytestmark = pytest.mark.trl

UNDECODED = List(Image(decode=False))
TRL = Version(trl.__version__)
# Rows of a batch come in another order from a stream: sums are rounded otherwise.
ROUNDING = {"rel": 2e-3, "abs": 1e-4}


@pytest.fixture
def load(tmp_path):
    """`load(kind)`: the rows that a trainer takes, from files."""

    def read(kind):
        columns, _, _ = KINDS[kind]
        folder = tmp_path / f"files{len(list(tmp_path.iterdir()))}"
        if columns:
            return load_messages(messages(folder, *columns))
        return load_mixture(mixture(folder))

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
    stream = load(kind).to_iterable_dataset()
    streamed = train(kind, policy_for(family), stream, tmp_path / "out")
    loaded = train(kind, policy_for(family), load(kind), tmp_path / "out")
    assert streamed[0] == pytest.approx(loaded[0], **ROUNDING)
    assert len(streamed) == 2


@pytest.mark.parametrize("kind", ["SFT", "DPO"])
def test_an_error_in_training_names_the_file_that_was_cut_off(kind, load, policy_for, tmp_path):
    dataset = load(kind).cast_column("images", UNDECODED)
    file = Path(dataset[1]["images"][1]["path"])
    file.write_bytes(file.read_bytes()[:-3000])
    with pytest.raises(
        ImageError, match=rf"Row \d+, image 1: .*{file}.*truncated.* It is in row 1 of the train_dataset"
    ):
        train(kind, policy_for(TWO[0]), dataset, tmp_path / "out")


@pytest.mark.parametrize("kind", ["SFT", "GRPO"])
def test_undecoded_rows_train_as_decoded_ones(kind, load, policy_for, tmp_path):
    dataset = load(kind)
    steps = train(kind, policy_for(TWO[0]), dataset, tmp_path / "out")
    undecoded = dataset.cast_column("images", UNDECODED)
    assert steps == train(kind, policy_for(TWO[0]), undecoded, tmp_path / "out")


def transparent():
    image = photo("cat", (150, 150))
    image.putalpha(photo("moon", (150, 150)).convert("L"))
    return image


@pytest.mark.parametrize("entry", ["from_dataset", "stream", "load_image_folder"])
@pytest.mark.parametrize("family", TWO)
def test_a_transparent_png_equals_stock(family, entry, policy_for, native_processor_for, tmp_path):
    (tmp_path / "cats").mkdir()
    file = tmp_path / "cats" / "a.png"
    transparent().save(file)
    if entry == "load_image_folder":
        dataset = load_image_folder(tmp_path, "What?")
    else:
        rows = Dataset.from_dict({"q": ["What?"], "image": [str(file)]})
        rows = rows.cast_column("image", Image())
        dataset = from_dataset(
            rows.to_iterable_dataset() if entry == "stream" else rows, prompt="q", images="image"
        )
    stock = native_processor_for(family).image_processor(transparent(), return_tensors="pt")["pixel_values"]
    processing = policy_for(family).processing_class
    for each in (dataset, dataset.cast_column("images", UNDECODED)):
        row = next(iter(each))
        batch = processing(text=[processing.state.one_image], images=[row["images"]])
        [(ticket, _)] = decode_tickets(batch["pixel_values"])
        assert torch.equal(processing.processed(ticket).inputs["pixel_values"], stock)
