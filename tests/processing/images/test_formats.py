"""Images are decoded within this process, by a list of formats; a file's name says nothing of its own."""

import io
import json
import os
import stat

import PIL.Image
import pytest

from hf_vlm_rl import DataError, ImageError
from hf_vlm_rl.data import load_image_folder, load_llava
from hf_vlm_rl.processing.images.formats import FORMATS
from hf_vlm_rl.processing.images.read import load_rgb
from hf_vlm_rl.processing.images.size import image_size
from tests.images import photo

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """A program `gs` on the path, and the file that it leaves when somebody starts it."""
    started = tmp_path / "started"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # it is looked for once in a process
    return started


FORMS = {
    "bytes": lambda path: path.read_bytes(),
    "path": str,
    "Path": lambda path: path,
    "dict": lambda path: {"bytes": path.read_bytes(), "path": None},
}


@pytest.mark.parametrize("read", [load_rgb, image_size], ids=["load_rgb", "image_size"])
@pytest.mark.parametrize("form", FORMS)
def test_postscript_under_another_name_starts_no_program(tmp_path, ghostscript, read, form):
    path = tmp_path / "photo.png"
    path.write_bytes(EPS)
    with pytest.raises(
        ImageError, match=r"not an image that PIL can read.*Expected an image encoded as one of JPEG"
    ):
        read(FORMS[form](path))
    assert not ghostscript.exists()


def test_postscript_that_the_caller_opened_is_named_and_starts_no_program(tmp_path, ghostscript):
    path = tmp_path / "photo.png"
    path.write_bytes(EPS)
    with pytest.raises(ImageError, match=r"is EPS\. Expected one of JPEG"):
        load_rgb(PIL.Image.open(path))
    assert not ghostscript.exists()
    with pytest.raises(OSError):  # the program would have been started
        PIL.Image.open(path).load()
    assert ghostscript.exists()


def test_loaders_that_verify_images_refuse_postscript_with_the_line(tmp_path, ghostscript):
    (tmp_path / "photo.png").write_bytes(EPS)
    turns = [{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "Nothing."}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"image": "photo.png", "conversations": turns}))
    with pytest.raises(DataError, match=r"line 1.*photo\.png.*cannot be read"):
        load_llava(tmp_path / "rows.jsonl", verify_images=True)
    assert not ghostscript.exists()


def test_folders_take_no_postscript(tmp_path):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.eps").write_bytes(EPS)
    with pytest.raises(DataError, match=r"a\.eps: the suffix '\.eps' is no image's that is read"):
        load_image_folder(tmp_path, "What is it?")


WRITTEN = sorted(set(FORMATS) - {"HEIF", "MPO"})


@pytest.mark.parametrize("kind", WRITTEN)
def test_formats_of_photographs_and_screenshots_equal_pillow(kind):
    PIL.Image.init()
    if kind not in PIL.Image.SAVE:
        pytest.skip(f"this build of Pillow has no {kind}")
    file = io.BytesIO()
    photo("cat", (40, 32)).save(file, kind)
    stock = PIL.Image.open(file)
    assert stock.format == kind
    assert load_rgb(file.getvalue()).tobytes() == stock.convert("RGB").tobytes()
