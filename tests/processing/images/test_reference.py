"""What an image field says is read alike by whoever needs pixels, sizes, hashes, or what datasets store."""

import base64
import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest

from hf_vlm_rl import ImageError
from hf_vlm_rl.data.passes.image_check import ImageRoot
from hf_vlm_rl.data.split import image_hash
from hf_vlm_rl.processing.conversation import normalize
from hf_vlm_rl.processing.images.read import load_rgb
from hf_vlm_rl.processing.images.reference import column_images, is_url, parse, payload
from hf_vlm_rl.processing.images.size import image_size
from tests.images import photo


@pytest.fixture
def path(tmp_path):
    """A photo with a space in its name."""
    photo("cat", (24, 32)).save(tmp_path / "a cat.png")
    return tmp_path / "a cat.png"


def data_url(path):
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


FORMS = {
    "str": str,
    "Path": lambda path: path,
    "file URL": Path.as_uri,
    "data URL": data_url,
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "stored bytes": lambda path: {"bytes": path.read_bytes(), "path": "moved.png"},
    "stored path": lambda path: {"bytes": None, "path": str(path)},
    "url": lambda path: {"url": path.as_uri()},
    "image_url": lambda path: {"image_url": {"url": data_url(path), "detail": "low"}},
    "base64": lambda path: {"base64": base64.b64encode(path.read_bytes()).decode(), "url": None},
    "image": lambda path: {"type": "image", "image": {"path": str(path), "bytes": None}},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_reader_takes_every_form(path, form):
    field = FORMS[form](path)
    pixels = photo("cat", (24, 32)).tobytes()
    assert load_rgb(field).tobytes() == pixels
    assert image_size(field) == (24, 32)
    assert image_hash(field) == image_hash(str(path))
    assert load_rgb(ImageRoot("/nowhere").stored(field)).tobytes() == pixels
    if isinstance(field, dict) and "bytes" not in field:
        [[message]], _ = normalize([{"role": "user", "content": [{**field, "type": "image"}]}])
        [block] = message["content"]
        assert load_rgb(block["image"]).tobytes() == pixels


def test_relative_paths_begin_at_the_folder(path):
    for field in (path.name, Path(path.name), f"file:{path.name.replace(' ', '%20')}", {"path": path.name}):
        assert parse(field, str(path.parent)) == {"path": str(path), "bytes": None}


@pytest.mark.parametrize("url", ["https://host/cat.png", "HTTP://host/cat.png"])
def test_addresses_are_kept(url):
    assert parse({"url": url}, "/folder") == {"path": url, "bytes": None}
    assert is_url(url)


@pytest.mark.parametrize("path", ["http.png", "https/cat.png", "a:http:b.png", "ftp://host/cat.png"])
def test_other_names_are_paths(path):
    assert not is_url(path)
    assert parse(path, "/folder")["path"] == f"/folder/{path}"


def test_several_images_in_one_dict_are_refused_and_none_is_a_place_for_one():
    with pytest.raises(ImageError, match=r"Got an image with \['image', 'url'\]. Expected one of them"):
        payload({"type": "image", "image": "a.png", "url": "b.png", "path": None})
    assert payload({"type": "image", "image": None}) is None


def test_pixels_are_no_reference():
    for image in (photo("cat", (8, 8)), [str], None, ""):
        with pytest.raises(ImageError, match="Expected a PIL image, a path"):
            parse(image)


def test_columns_become_lists_in_the_order_of_trl():
    image = PIL.Image.new("RGB", (1, 1))
    assert column_images({"images": [image, "b"], "image": "c"}) == [image, "b"]
    assert column_images({"images": None, "image": "c"}) == ["c"]
    assert column_images({"image": ("c", "d")}) == ["c", "d"]
    assert column_images({"images": [], "image": "c"}) == column_images({}) == []


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_of_an_open_image_is_that_which_the_model_sees(orientation):
    image = photo("cat", (24, 32))
    image.getexif()[PIL.ExifTags.Base.Orientation] = orientation
    assert image_size(image) == load_rgb(image).size == (24, 32)


def test_neither_torch_nor_datasets_is_imported():
    script = (
        "import sys, hf_vlm_rl.processing.images.size\n"
        "sys.exit(bool({'torch', 'datasets'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
