"""Whatever users call an image gives the ids and pixels of a stock processor's call on it, or both refuse."""

import base64
import io
from pathlib import Path

import datasets
import numpy as np
import PIL.Image
import pytest
import torch
from transformers import AutoProcessor
from transformers.image_utils import load_image

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets
from tests.conformance.cases import ALL
from tests.processing.images.test_read import MODES, encoded, picture

pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency")


def opened(mode: str, **options) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(encoded(picture(mode), **options)))


def turned() -> PIL.Image.Image:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    return opened("RGB", exif=exif)


def array(mode: str) -> np.ndarray:
    return np.asarray(picture(mode)).copy()


PILS = {
    **{f"PIL {mode}": (lambda mode=mode: picture(mode)) for mode in MODES},
    "PIL P with one transparent colour": lambda: opened("P", transparency=0),
    "PIL P with an alpha per colour": lambda: opened("P", transparency=bytes(range(0, 256, 2))),
    "PIL RGB with a transparent colour": lambda: opened("RGB", transparency=picture().getpixel((0, 0))),
    "PIL L with a transparent level": lambda: opened("L", transparency=100),
    "PIL with an EXIF orientation": turned,
}
ARRAYS = {
    "HWC": lambda: array("RGB"),
    "CHW": lambda: array("RGB").transpose(2, 0, 1),
    "HW": lambda: array("L"),
    "HW1": lambda: array("L")[:, :, None],
    "1HW": lambda: array("L")[None],
    "HW4": lambda: array("RGBA"),
    "4HW": lambda: array("RGBA").transpose(2, 0, 1),
    "HW2": lambda: array("LA"),
    "3W3, which is read as channels first": lambda: array("RGB")[:3],
    "a batch of one": lambda: array("RGB")[None],
    "a crop that is not contiguous": lambda: array("RGB")[::2, 3:],
    "empty": lambda: array("RGB")[:0],
}
# Stock takes these, and gets something else than the picture; the store of images holds 8 bits a channel.
OTHER_TYPES = {
    "float64": lambda: array("RGB") / 255,
    "float32 CHW": lambda: (array("RGB").transpose(2, 0, 1) / 255).astype(np.float32),
    "float32 in [0, 255]": lambda: array("RGB").astype(np.float32),
    "float32 HW": lambda: array("L").astype(np.float32) / 255,
    "float32 HW4": lambda: array("RGBA").astype(np.float32) / 255,
    "float16 tensor": lambda: torch.from_numpy(array("RGB") / 255).half(),
    "bfloat16 tensor": lambda: torch.from_numpy(array("RGB") / 255).bfloat16(),
    "uint16": lambda: array("RGB").astype(np.uint16) * 257,
    "int64": lambda: array("RGB").astype(np.int64),
    "bool": lambda: array("RGB") > 100,
}
FILES = {
    **{f"a PNG of {mode}": encoded(picture(mode)) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")},
    **{f"a JPEG of {mode}": encoded(picture(mode), "JPEG") for mode in ("L", "RGB", "CMYK")},
    "a WebP of RGBA": encoded(picture("RGBA"), "WEBP", lossless=True),
    "a GIF of P": encoded(picture("P"), "GIF", transparency=0),
    "a TIFF of F": encoded(picture("F"), "TIFF"),
    "a PNG of P with transparency": encoded(picture("P"), transparency=bytes(range(0, 256, 2))),
    "a JPEG with an EXIF orientation": encoded(picture(), "JPEG", exif=turned().getexif()),
}


def file_read(path: Path) -> PIL.Image.Image:
    """What `load_image` reads, without its note on a transparent colour, which some files leave."""
    image = load_image(str(path))
    image.info = {}
    return image


@pytest.fixture(scope="module")
def both(_loaded_policy, checkpoint):
    """`both(family)`: its processing class and the stock processor."""
    return lambda family: (
        _loaded_policy(family).processing_class,
        AutoProcessor.from_pretrained(checkpoint(family), padding_side="left"),
    )


OF_EACH_KIND = ("internvl", "qwen2_5_vl", "gemma3", "paligemma")
FAMILIES = [pytest.param(family, marks=[] if family in OF_EACH_KIND else pytest.mark.slow) for family in ALL]


@pytest.fixture(scope="module", params=FAMILIES)
def called(request, both):
    """`called(ours, stock)`: what both make of a prompt with one image; an exception if one refuses."""
    processing, stock = both(request.param)
    text = processing.state.one_image

    def ours(image):
        batch = processing(images=[[image]], text=[text])
        ((ticket, _),) = decode_tickets(batch["pixel_values"])
        return batch["input_ids"][0], processing.processed(ticket).inputs

    def native(image):
        batch = stock(images=[[image]], text=[text], return_tensors="pt")
        return batch["input_ids"][0].tolist(), batch

    def call(ours_of, stock_of):
        made = []
        for function, image in ((ours, ours_of), (native, stock_of)):
            try:
                made.append(function(image))
            except (ValueError, TypeError, RuntimeError, IndexError, ArithmeticError) as error:
                made.append(error)
        return made

    return call


def assert_equal(made, expected):
    if isinstance(expected, Exception):
        assert isinstance(made, ImageError), f"stock refuses: {expected!r}"
        return
    assert not isinstance(made, Exception), repr(made)
    assert made[0] == expected[0]
    compared = [name for name in made[1] if name in expected[1]]
    assert "pixel_values" in compared
    for name in compared:
        torch.testing.assert_close(made[1][name], expected[1][name], rtol=0, atol=0)


@pytest.mark.parametrize("kind", PILS)
def test_a_pil_image_equals_stock(called, kind):
    image = PILS[kind]()
    assert_equal(*called(image, image))


@pytest.mark.parametrize("torch_too", [False, True])
@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_equals_stock(called, kind, torch_too):
    image = torch.from_numpy(ARRAYS[kind]()) if torch_too else ARRAYS[kind]()
    assert_equal(*called(image, image))


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_an_array_of_another_type_is_refused_by_name(called, kind):
    image = OTHER_TYPES[kind]()
    made, expected = called(image, image)
    assert isinstance(made, ImageError)
    # transformers before 5.23 refuses some of these itself, and we pass on what it says.
    if not isinstance(expected, Exception):
        assert "8 bits a channel" in str(made) or "outside the range" in str(made)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_equals_load_image(called, kind, tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(FILES[kind])
    url = "data:image/png;base64," + base64.b64encode(FILES[kind]).decode()
    for form in (str(path), path, path.as_uri(), FILES[kind], url, {"url": str(path)}, {"path": path}):
        made, expected = called(form, file_read(path))
        assert_equal(made, expected)


@pytest.mark.parametrize("kind", [kind for kind in FILES if "I;16" not in kind and "TIFF" not in kind])
def test_a_path_equals_stocks_call_on_the_path(called, kind, tmp_path):
    # torchvision, which reads paths there, knows no TIFF, and gives 16 bits of a PNG with 16 bits.
    path = tmp_path / "picture"
    path.write_bytes(FILES[kind])
    assert_equal(*called(str(path), str(path)))


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("by", ["path", "bytes", "image"])
def test_a_row_of_datasets_equals_stock_on_the_decoded_row(called, kind, by, tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(FILES[kind])
    stored = {"path": str(path), "bytes": FILES[kind], "image": PIL.Image.open(io.BytesIO(FILES[kind]))}[by]
    rows = datasets.Dataset.from_dict({"image": [stored]}, datasets.Features({"image": datasets.Image()}))
    decoded = rows[0]["image"]
    undecoded = rows.cast_column("image", datasets.Image(decode=False))[0]["image"]
    assert isinstance(undecoded, dict)
    made, expected = called(decoded, decoded)
    assert_equal(made, expected)
    assert_equal(called(undecoded, decoded)[0], expected)
    assert_equal(called({"image": undecoded, "detail": "high"}, decoded)[0], expected)
