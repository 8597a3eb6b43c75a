"""Image processing on the device instead of the host: what it gains, and how far its pixels are off.

Processors of torchvision take `device=`. A resized image then differs, as the device rounds otherwise: the
largest difference of a pixel, and the share of pixels that differ, say whether a model that was trained with
the host's may be given them. "step" is one level of 256 after the processor's normalisation. Milliseconds for
one image of 7 tiles, medians of 5, the copy to the device included on both sides.
"""

import statistics
import time
from collections.abc import Callable

import torch

from ..models import image, stock
from .report import Part, reason, table

MODELS = ("internvl-8b", "qwen2_5_vl-3b", "qwen3_5-4b")
TINY = ("tiny-internvl", "tiny-qwen2_5_vl")
COLUMNS = ("model", "pixels", "host ms", "device ms", "largest difference", "step", "pixels that differ")


def compare(name: str, device: str) -> tuple[object, ...]:
    """The table's line of one model's image processor."""
    _, processor = stock(name, 7, "meta")
    processing = processor.image_processor
    images = image(name, 7)

    def on_host() -> torch.Tensor:
        return processing(images=images, return_tensors="pt")["pixel_values"].to(device)

    def on_device() -> torch.Tensor:
        return processing(images=images, return_tensors="pt", device=device)["pixel_values"].to(device)

    host, other = on_host().float(), on_device().float()
    apart = (host - other).abs()
    level = 1 / 255 / max(processing.image_std)
    return (
        name, f"{images[0].width} x {images[0].height}", f"{_milliseconds(on_host, device):.1f}",
        f"{_milliseconds(on_device, device):.1f}", f"{float(apart.max()):.1e}", f"{level:.1e}",
        f"{float((apart > 1e-6).float().mean()):.2%}",
    )  # fmt: skip


def _milliseconds(run: Callable[[], torch.Tensor], device: str) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def preprocessing(part: Part) -> None:
    """Write a line for each model."""
    part.write(__doc__.split("\n\n", 1)[1] + "\n")
    part.write(table(COLUMNS, head=True))
    for name in TINY if part.tiny else MODELS:
        try:
            part.write(table(compare(name, part.device)))
        except Exception as error:
            part.write(table((name, f"**FAILS**: {reason(error)}", "", "", "", "", "")))
