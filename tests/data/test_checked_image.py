"""Images that `datasets` decodes: as `datasets.Image` does, but errors name file and row."""

import io
import pickle
from pathlib import Path

import datasets
import numpy as np
import PIL.Image
import pytest
from datasets import Dataset, Features, Image, List, concatenate_datasets
from torch.utils.data import DataLoader

from hf_vlm_rl import ImageError
from hf_vlm_rl.data import CheckedImage, checked_images, from_dataset
from tests.data.stock import train
from tests.data.trained_files import messages
from tests.images import photo
from tests.trainers.runs import TWO, user

MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F", "I;16")
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP")


def encoded(mode: str, kind: str, orientation: int) -> bytes | None:
    image = photo("cat", (31, 21)).convert("RGB")
    image = image.convert("L").convert(mode) if mode in ("PA", "LA", "I;16") else image.convert(mode)
    exif = PIL.Image.Exif()
    exif[PIL.Image.ExifTags.Base.Orientation] = orientation
    out = io.BytesIO()
    try:
        image.save(out, kind, exif=exif)
        PIL.Image.open(io.BytesIO(out.getvalue())).load()
    except (OSError, ValueError, KeyError):  # no such mode; before Pillow 13, a TIFF in YCbCr is cut off
        return None
    return out.getvalue()


@pytest.mark.parametrize("mode", [None, "RGB", "L"])
@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_those_of_datasets(kind, mode, tmp_path):
    seen = 0
    for number, of in enumerate(MODES):
        for orientation in (1, 6):
            data = encoded(of, kind, orientation)
            if data is None:
                continue
            file = tmp_path / f"{number}.{orientation}"
            file.write_bytes(data)
            for stored in ({"bytes": data, "path": None}, {"bytes": None, "path": str(file)}):
                # PIL does not turn an uncompressed TIFF that it maps from a path, so bytes are compared.
                stock = Image(mode=mode).decode_example({"bytes": data, "path": None})
                ours = CheckedImage(mode=mode).decode_example(stored)
                assert ours.mode == stock.mode
                np.testing.assert_array_equal(np.asarray(ours), np.asarray(stock))
                assert ours.info.get("transparency") == stock.info.get("transparency")
                seen += 1
    assert seen >= 8


def rows(tmp_path, feature, **columns):
    paths = [str(tmp_path / f"{name}.png") for name in "abcd"]
    for number, path in enumerate(paths):
        photo("cat", (64, 64 + number)).save(path)
    (tmp_path / "c.png").write_bytes((tmp_path / "c.png").read_bytes()[:-1500])
    nested = isinstance(feature, List)
    images = [[path] if nested else path for path in paths]
    features = {name: datasets.Value("string") for name in columns}
    return Dataset.from_dict({"picture": images, **columns}, Features({"picture": feature, **features}))


@pytest.mark.parametrize("feature", [Image(), List(Image())], ids=["one", "list"])
def test_an_error_names_file_and_row_of_the_dataset_that_is_read(feature, tmp_path):
    dataset = checked_images(rows(tmp_path, feature))
    with pytest.raises(ImageError, match=r"^Row 2: .*c\.png.*truncated"):
        dataset[2]
    turned = dataset.select([3, 2, 1, 0])
    assert turned[0]["picture"]
    with pytest.raises(ImageError, match=r"^Row 1: .*c\.png"):
        turned[0:2]
    with pytest.raises(ImageError, match=r"^Row 1: .*c\.png"):
        next(iter(DataLoader(turned, batch_size=4, collate_fn=list)))
    with pytest.raises(ImageError, match=r"(?s)Row 1: [^\n]*c\.png"):  # with the worker's traceback
        next(iter(DataLoader(turned, batch_size=4, collate_fn=list, num_workers=1)))
    with pytest.raises(ImageError, match=r"c\.png"):  # a stream does not know its rows
        list(checked_images(rows(tmp_path, feature).to_iterable_dataset()))


def test_bytes_without_a_path_are_found_by_their_row(tmp_path):
    read = rows(tmp_path, Image()).cast_column("picture", Image(decode=False))
    stored = [{"bytes": Path(row["picture"]["path"]).read_bytes(), "path": None} for row in read]
    dataset = Dataset.from_dict({"picture": stored}, Features({"picture": CheckedImage()}))
    with pytest.raises(ImageError, match=r"^Row 2: .*truncated"):
        list(dataset)


def test_it_stays_through_what_people_do_with_datasets_and_equals_datasets_own(tmp_path):
    feature = List(CheckedImage())
    assert feature == List(Image())
    assert List(Image()) == feature
    assert Features({"picture": feature}) == Features({"picture": List(Image())})
    assert hash(CheckedImage()) == hash(CheckedImage(decode=True)) != hash(CheckedImage(mode="L"))
    assert isinstance(pickle.loads(pickle.dumps(feature)).feature, CheckedImage)
    dataset = rows(tmp_path, feature, text=list("abcd"))
    stock = rows(tmp_path, List(Image()), text=list("abcd"))
    changed = {
        "map": dataset.map(lambda text: {"more": text * 2}, input_columns="text"),
        "filter": dataset.filter(lambda text: text != "b", input_columns="text"),
        "shuffle": dataset.shuffle(seed=0),
        "split": dataset.train_test_split(test_size=1, seed=0)["train"],
        "rename": dataset.rename_column("text", "words"),
        "cast": dataset.cast_column("text", datasets.Value("large_string")),
        "concatenate": concatenate_datasets([dataset, stock]),
        "stream": dataset.to_iterable_dataset(),
        "splits": checked_images(datasets.DatasetDict(train=stock))["train"],
    }
    kinds = {name: type(each.features["picture"].feature) for name, each in changed.items()}
    assert set(kinds.values()) == {CheckedImage}, kinds
    dataset.save_to_disk(tmp_path / "saved")
    assert type(Dataset.load_from_disk(tmp_path / "saved").features["picture"].feature) is Image


def test_foreign_formats_and_too_many_pixels_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    photo("cat", (64, 64)).save(tmp_path / "cat.eps")
    photo("cat", (64, 64)).save(tmp_path / "cat.png")
    paths = [str(tmp_path / name) for name in ("cat.eps", "cat.png")]
    dataset = checked_images(Dataset.from_dict({"image": paths}, Features({"image": Image()})))
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "4095")
    for row, said in enumerate(("not an image that PIL can read", "64 x 64 pixels, more than 4095")):
        with pytest.raises(ImageError, match=rf"^Row {row}: .*{said}"):
            dataset[row]


def truncated(folder, how):
    """Rows of GRPO with a truncated file in row 1, as an entry point gives them."""
    from hf_vlm_rl.data import load_messages

    file = messages(folder)
    picture = folder / "pictures" / "cat.png"
    picture.write_bytes(picture.read_bytes()[:-3000])
    if how == "loader":
        return load_messages(file), picture
    pictures = [[str(folder / "pictures" / name)] for name in ("woman.png", "cat.png", "cup.png")]
    plain = Dataset.from_dict(
        {"prompt": [user("What?")] * 3, "images": pictures},
        Features({"prompt": from_features(), "images": List(Image())}),
    )
    if how == "from_dataset":
        return from_dataset(plain, prompt="prompt", images="images"), picture
    return checked_images(plain), picture


def from_features():
    return List({"role": datasets.Value("string"), "content": datasets.Value("string")})


@pytest.mark.trl
@pytest.mark.parametrize("how", ["loader", "from_dataset", "checked_images"])
def test_a_stock_trainers_error_names_file_and_row(how, policy_for, tmp_path):
    dataset, picture = truncated(tmp_path, how)
    with pytest.raises(ImageError, match=rf"^Row 1: .*{picture}.*truncated"):
        train("GRPO", policy_for(TWO[0]), dataset, tmp_path / "out")


@pytest.mark.trl
@pytest.mark.parametrize("kind", ["SFT", "DPO"])
def test_so_does_that_of_a_trainer_that_maps_its_rows(kind, policy_for, tmp_path):
    from hf_vlm_rl.data import load_messages
    from tests.data.stock import KINDS

    dataset = load_messages(messages(tmp_path, *KINDS[kind][0]))
    picture = tmp_path / "pictures" / "cat.png"
    picture.write_bytes(picture.read_bytes()[:-3000])
    with pytest.raises(ImageError, match=rf"^Row 1: .*{picture}.*truncated"):
        train(kind, policy_for(TWO[0]), dataset, tmp_path / "out")
