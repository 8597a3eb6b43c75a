"""What is no usable image is refused with an `ImageError` that says what came and what to do."""

import io

import numpy as np
import PIL.Image
import pytest
import torch

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.images.read import load_rgb
from tests.images import photo


def encoded(kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    photo("cat", (40, 30)).save(buffer, kind, **options)
    return buffer.getvalue()


def test_image_errors_are_value_errors():
    with pytest.raises(ValueError, match="NoneType"):
        load_rgb(None)


def test_a_missing_file_is_named(tmp_path):
    for form in (tmp_path / "no.png", str(tmp_path / "no.png"), f"file://{tmp_path}/no.png"):
        with pytest.raises(ImageError, match=r"Cannot read the image file '.*/no\.png': No such file"):
            load_rgb(form)


def test_a_directory_is_named(tmp_path):
    with pytest.raises(ImageError, match=f"{tmp_path}.*Is a directory"):
        load_rgb(tmp_path)


def test_a_text_file_is_named(tmp_path):
    (tmp_path / "note.png").write_text("not an image")
    with pytest.raises(ImageError, match=r"note\.png.*not an image that PIL can read"):
        load_rgb(tmp_path / "note.png")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF"])
def test_a_truncated_file_is_refused(tmp_path, kind):
    data = encoded(kind)
    (tmp_path / "half.img").write_bytes(data[: len(data) // 2])
    with pytest.raises(ImageError, match="half"):
        load_rgb(tmp_path / "half.img")
    with pytest.raises(ImageError, match=r"bytes"):
        load_rgb(data[: len(data) // 2])
    with pytest.raises(ImageError, match=r"half|bytes"):
        load_rgb({"bytes": data[: len(data) // 2], "path": "half.img"})


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "AVIF", "BMP", "JPEG2000", "DDS"])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_damaged_files_raise_image_errors_and_nothing_else(kind):
    data, draw = encoded(kind), np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        for place in draw.integers(12, 200, 3):
            damaged[place] = draw.integers(256)
        try:
            assert load_rgb(bytes(damaged)).mode == "RGB"
        except ImageError:
            refused += 1
    assert refused


@pytest.fixture(autouse=True)
def small_images_only(monkeypatch):
    # A damaged header may promise gigabytes.
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100_000)


def test_a_decompression_bomb_is_refused(tmp_path):
    PIL.Image.new("1", (1000, 1000)).save(tmp_path / "bomb.png")
    with pytest.raises(ImageError, match=r"bomb\.png.*decompression bomb"):
        load_rgb(tmp_path / "bomb.png")


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, bytearray(b"GIF89a"), {"bytes": b"", "path": "x.png"}])
def test_bytes_that_are_no_image_are_refused(data):
    with pytest.raises(ImageError, match="not an image that PIL can read"):
        load_rgb(data)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("data:image/png,abc", "Expected data:image/...;base64"),
        ("data:image/png;base64,a*b", "is not valid base64"),
        ("data:image/png;base64,abc", "is not valid base64"),
        ("data:image/png;base64,", "the data URL: not an image"),
        ("http://127.0.0.1:9/cat.png", r"Cannot fetch the image 'http://127.0.0.1:9/cat.png'"),
        ("http://[bad/cat.png", "Cannot fetch the image"),
        ("ftp://host/cat.png", "Cannot read the image file 'ftp:"),
        ("a\0b.png", "null byte"),
        ("x" * 100_000, "name too long"),
    ],
)
def test_a_bad_url_or_path_is_quoted(url, message):
    with pytest.raises(ImageError, match=message) as caught:
        load_rgb(url)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", [None, 3, 2.5, [], [photo("cat", (8, 8))], (1, 2), object(), {1, 2}])
def test_other_types_are_named(value):
    with pytest.raises(ImageError, match=f"image of type {type(value).__name__}. Expected a PIL image"):
        load_rgb(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, r"keys \[\] and neither 'bytes' nor 'path'"),
        ({"bytes": None, "path": None}, r"keys \['bytes', 'path'\] and neither"),
        ({"uri": "x.png"}, r"keys \['uri'\] and neither"),
        ({"url": "x.png", "path": "x.png"}, r"Got an image with \['path', 'url'\]"),
        ({"bytes": "text"}, "bytes-like object is required"),
    ],
)
def test_a_dict_without_an_image_is_refused(value, message):
    with pytest.raises(ImageError, match=message):
        load_rgb(value)


OTHER_TYPES = ("float64", "float32", "float16", "int32", "int64", "uint16", "int8", "bool", "complex64")


@pytest.mark.parametrize("dtype", [*OTHER_TYPES, torch.bfloat16])
def test_other_array_types_are_named(dtype):
    shape = (4, 5, 3)
    array = torch.zeros(shape, dtype=dtype) if dtype == torch.bfloat16 else np.zeros(shape, dtype=dtype)
    with pytest.raises(ImageError, match=f"dtype {dtype}. Expected uint8"):
        load_rgb(array)


@pytest.mark.parametrize(
    "shape",
    [(), (5,), (5, 6, 2), (2, 5, 6), (5, 6, 7), (1, 4, 5, 3), (0, 5, 3), (4, 0, 3), (3, 0, 5), (0, 0)],
)
def test_other_array_shapes_are_quoted(shape):
    with pytest.raises(ImageError) as caught:
        load_rgb(np.zeros(shape, dtype=np.uint8))
    assert f"array of shape {shape}. Expected (H, W)" in str(caught.value)


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_an_empty_pil_image_is_refused(size):
    with pytest.raises(ImageError, match=f"{size[0]} x {size[1]} pixels. Expected at least 1 x 1"):
        load_rgb(PIL.Image.new("RGB", size))


def test_a_closed_file_is_refused(tmp_path):
    photo("cat", (40, 30)).save(tmp_path / "cat.png")
    with PIL.Image.open(tmp_path / "cat.png") as opened:
        pass
    with pytest.raises(ImageError, match="Cannot decode an image given as PngImageFile"):
        load_rgb(opened)
