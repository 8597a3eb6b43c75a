"""Images that do not compress, and what a store wrote."""

import numpy as np
import PIL.Image

from hf_vlm_rl import ImageStore
from hf_vlm_rl.processing.images.disk import MARKER


def noise(seed: int, size: tuple[int, int] = (40, 30)) -> PIL.Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return PIL.Image.fromarray(pixels)


def same(left: PIL.Image.Image, right: PIL.Image.Image) -> bool:
    return left.size == right.size and left.mode == right.mode and left.tobytes() == right.tobytes()


def files(store: ImageStore, pattern: str = "*") -> list[str]:
    found = (path for path in store.directory.rglob(pattern) if path.is_file())
    return sorted(path.name for path in found if path.name != MARKER)
