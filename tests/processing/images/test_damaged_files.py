"""Image files that somebody damaged or made: read, or refused in words, in bounded memory."""

import io
import random
import resource

import PIL.Image
import pytest

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.images.formats import FORMATS
from hf_vlm_rl.processing.images.read import load_rgb
from hf_vlm_rl.processing.images.size import image_size
from tests.images import photo

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
WRITTEN = sorted(set(FORMATS) - {"HEIF"})


def encoded(kind: str) -> bytes:
    PIL.Image.init()
    if kind not in PIL.Image.SAVE:
        pytest.skip(f"this build of Pillow has no {kind}")
    file = io.BytesIO()
    photo("cat", (40, 32)).save(file, kind)
    return file.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, or with other bytes in its header or anywhere, or with a part that is gone or comes twice."""
    changed = bytearray(data)
    at, length = rng.randrange(len(data)), rng.randrange(1, 200)
    match rng.choice(["cut", "header", "header", "anywhere", "gone", "twice"]):
        case "cut":
            del changed[at:]
        case "gone":
            del changed[at : at + length]
        case "twice":
            changed[at:at] = changed[at : at + length]
        case part:
            end = min(64, len(data)) if part == "header" else len(data)
            for _ in range(rng.randrange(1, 8)):
                changed[rng.randrange(end)] = rng.choice([0, 127, 128, 255, rng.randrange(256)])
    return bytes(changed)


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_damaged_file_is_read_or_refused(kind, monkeypatch):
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", str(1 << 22))
    data, rng = encoded(kind), random.Random(kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(400):
        file = damaged(data, rng)
        try:
            size = load_rgb(file).size
        except ImageError:
            refused += 1
            continue
        assert image_size(file) == size
    assert 0 < refused < 400
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # kB
