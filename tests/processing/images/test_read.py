"""A file gives the pixels of transformers' `load_image`; a decoded image, those of its `convert_to_rgb`."""

import base64
import io
from pathlib import Path

import datasets
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import torch
import transformers
from packaging.version import Version
from transformers.image_transforms import convert_to_rgb
from transformers.image_utils import load_image

from hf_vlm_rl.processing.images.read import load_rgb
from tests.images import photo

SIZE = (37, 23)
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr", "HSV", "LAB", "I;16", "I", "F")


def picture(mode: str = "RGB") -> PIL.Image.Image:
    """A photo in a mode, with an alpha channel that varies where the mode has one."""
    image = photo("coffee", SIZE)
    grey = np.asarray(image.convert("L"))
    if mode in ("I;16", "I", "F"):
        return PIL.Image.fromarray(grey.astype({"I;16": "uint16", "I": "int32", "F": "float32"}[mode]) * 3)
    if mode in ("LA", "PA", "RGBA", "RGBa"):
        image.putalpha(PIL.Image.linear_gradient("L").resize(SIZE))
        return image.convert("LA").convert(mode) if mode == "PA" else image.convert(mode)
    if mode == "LAB":
        return PIL.Image.merge("LAB", image.split())
    return image.convert(mode)


def encoded(image: PIL.Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def expected(image: PIL.Image.Image) -> np.ndarray:
    return np.asarray(PIL.ImageOps.exif_transpose(image).convert("RGB"))


def assert_is(loaded: PIL.Image.Image, pixels: np.ndarray) -> None:
    assert loaded.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(loaded), pixels)


def stock_rgb(image: PIL.Image.Image) -> np.ndarray:
    """transformers 5.20 drops transparency, and knows no option for it."""
    options = {} if Version(transformers.__version__) < Version("5.21") else {"return_numpy": True}
    return np.asarray(convert_to_rgb(image, **options))


@pytest.mark.parametrize("mode", MODES)
def test_a_pil_image_of_any_mode_is_converted_as_transformers_does(mode):
    image = picture(mode)
    assert image.mode == mode
    assert_is(load_rgb(image), stock_rgb(picture(mode)))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_a_png_file_of_any_mode_is_read_as_transformers_does(tmp_path, mode):
    path = tmp_path / "image.png"
    picture(mode).save(path)
    assert_is(load_rgb(path), np.asarray(load_image(str(path))))
    assert_is(load_rgb(path.read_bytes()), np.asarray(load_image(str(path))))


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("transparency", [0, b"\x00\x80\xff"])
def test_a_palette_with_transparency_is_read_as_transformers_does(tmp_path, transparency):
    path = tmp_path / "image.png"
    picture("P").save(path, transparency=transparency)
    assert "transparency" in PIL.Image.open(path).info
    assert_is(load_rgb(path), np.asarray(load_image(str(path))))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_other_file_kinds_are_read_as_transformers_does(tmp_path, kind, mode):
    path = tmp_path / "without_suffix"
    picture(mode).save(path, kind)
    assert_is(load_rgb(path), np.asarray(load_image(str(path))))


def test_a_cmyk_jpeg_is_read_as_transformers_does(tmp_path):
    path = tmp_path / "image.jpg"
    picture("CMYK").save(path)
    assert_is(load_rgb(path), np.asarray(load_image(str(path))))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_exif_orientation_of_a_file_is_applied_and_that_of_an_open_image_is_not(tmp_path, orientation):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "image.jpg"
    picture().save(path, exif=exif, quality=95)
    loaded = load_rgb(path)
    assert_is(loaded, np.asarray(load_image(str(path))))
    assert loaded.size == (SIZE if orientation < 5 else SIZE[::-1])
    assert loaded.getexif().get(0x0112, 1) == 1
    assert_is(load_rgb({"bytes": path.read_bytes(), "path": None}), np.asarray(loaded))
    with PIL.Image.open(path) as opened:
        assert_is(load_rgb(opened), np.asarray(opened))


FORMS = {
    "bytes": lambda path: path.read_bytes(),
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "str": str,
    "Path": lambda path: path,
    "file URL": lambda path: path.as_uri(),
    "file URL, not encoded": lambda path: f"file://{path}",
    "file URL in capitals": lambda path: "FILE" + path.as_uri()[4:],
    "data URL": lambda path: "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode(),
    "data URL in lines": lambda path: "data:;base64,\n" + base64.encodebytes(path.read_bytes()).decode(),
    "dict of a Path": lambda path: {"path": path},
}
# Decoded already, or as `datasets` stores what it decodes.
DECODED = {
    "dict of bytes": lambda path: {"bytes": path.read_bytes(), "path": None},
    "dict of path": lambda path: {"bytes": None, "path": str(path)},
    "dict of both": lambda path: {"bytes": path.read_bytes(), "path": "moved/away.png"},
    "opened": PIL.Image.open,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_file_gives_the_same_pixels(tmp_path, form):
    path = tmp_path / "a photo.png"
    picture("RGBA").save(path)
    assert_is(load_rgb(FORMS[form](path)), np.asarray(load_image(str(path))))


@pytest.mark.parametrize("form", DECODED)
def test_every_form_of_a_decoded_image_gives_the_same_pixels(tmp_path, form):
    path = tmp_path / "a photo.png"
    picture("RGBA").save(path)
    assert_is(load_rgb(DECODED[form](path)), stock_rgb(picture("RGBA")))


@pytest.mark.parametrize("name", ["100%.png", "a%20b.png", "a#b?c.png", "é [1].png", "x:y.png", "data.png"])
def test_odd_file_names_are_found_by_path_and_by_url(tmp_path, name, monkeypatch):
    path = tmp_path / name
    picture().save(path)
    for form in (path, str(path), path.as_uri(), {"path": str(path)}):
        assert_is(load_rgb(form), expected(picture()))
    monkeypatch.chdir(tmp_path)
    assert_is(load_rgb(Path(name)), expected(picture()))
    assert_is(load_rgb(name), expected(picture()))


ARRAYS = {
    "HWC": lambda pixels: pixels,
    "CHW": lambda pixels: pixels.transpose(2, 0, 1),
    "strided": lambda pixels: np.repeat(pixels, 2, axis=1)[:, ::2],
    "torch HWC": torch.from_numpy,
    "torch CHW": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1),
}


@pytest.mark.parametrize("layout", ARRAYS)
def test_every_layout_of_an_array_gives_the_same_pixels(layout):
    pixels = np.asarray(picture()).copy()
    assert_is(load_rgb(ARRAYS[layout](pixels)), pixels)


@pytest.mark.parametrize("shape", [(23, 37), (23, 37, 1), (1, 23, 37)])
def test_grey_arrays_fill_all_three_channels(shape):
    grey = np.asarray(picture("L"))
    assert_is(load_rgb(grey.reshape(shape)), np.repeat(grey[:, :, None], 3, axis=2))


def test_the_alpha_channel_of_an_array_is_read_as_that_of_an_image():
    assert_is(load_rgb(np.asarray(picture("RGBA"))), stock_rgb(picture("RGBA")))


@pytest.mark.parametrize("side", [1, 3, 4])
def test_channels_last_wins_where_both_layouts_fit(side):
    pixels = np.arange(side * 5 * 3, dtype=np.uint8).reshape(side, 5, 3)
    assert_is(load_rgb(pixels), pixels)


def test_an_image_of_one_pixel_works():
    assert_is(load_rgb(PIL.Image.new("RGB", (1, 1), (1, 2, 3))), np.array([[[1, 2, 3]]], dtype=np.uint8))


@pytest.mark.parametrize("decode", [True, False])
def test_what_datasets_stores_is_read(tmp_path, decode):
    path = tmp_path / "on disk.png"
    picture("RGBA").save(path)
    feature = datasets.Image(decode=decode)
    columns = {"image": [picture("RGBA"), str(path), {"bytes": encoded(picture("RGBA"))}, None]}
    rows = datasets.Dataset.from_dict(columns, features=datasets.Features({"image": feature}))
    *images, missing = rows["image"]
    assert missing is None
    assert [type(image) is dict for image in images] == [not decode] * 3
    for image in images:
        assert_is(load_rgb(image), stock_rgb(picture("RGBA")))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_the_given_image_is_neither_changed_nor_shared(mode):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    image = PIL.Image.open(io.BytesIO(encoded(picture(mode), exif=exif)))
    before = image.copy()
    load_rgb(image).paste((1, 2, 3), (0, 0, 10, 10))
    assert (image.mode, image.size, image.tobytes()) == (before.mode, before.size, before.tobytes())
    assert image.getexif()[0x0112] == 6


def test_the_given_array_is_neither_changed_nor_shared():
    pixels = np.asarray(picture()).copy()
    load_rgb(pixels).paste((1, 2, 3), (0, 0, 10, 10))
    np.testing.assert_array_equal(pixels, np.asarray(picture()))
