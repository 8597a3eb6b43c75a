"""Short clips: photographs of scikit-image that a camera moves over, as frames and as files."""

import io
from functools import lru_cache

import numpy as np

from tests.images import photo

SIZE = (112, 84)


@lru_cache
def moving(name: str, frames: int = 4, size: tuple[int, int] = SIZE, step: int = 8) -> np.ndarray:
    """uint8 (T, H, W, 3): a window of ``size`` (width, height) that moves by ``step`` pixels a frame."""
    width, height = size
    scene = np.asarray(photo(name, (width + step * frames, height)))
    clip = np.stack([scene[:, step * at : step * at + width] for at in range(frames)])
    return clip


@lru_cache
def encoded(
    name: str,
    frames: int = 24,
    fps: int = 8,
    codec: str = "libx264",
    container: str = "mp4",
    size: tuple[int, int] = SIZE,
) -> bytes:
    """The same as the bytes of a video file."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=fps)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for pixels in moving(name, frames, size, step=4):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        output.mux(stream.encode())
    return file.getvalue()


def metadata(clip: np.ndarray, fps: float = 2.0) -> dict:
    """The metadata of a clip of which every frame was taken."""
    frames, height, width, _ = clip.shape
    return {
        "total_num_frames": frames,
        "fps": fps,
        "frames_indices": list(range(frames)),
        "duration": frames / fps,
        "width": width,
        "height": height,
    }


def video(clip: np.ndarray, fps: float = 2.0) -> dict:
    """A block with all frames of a clip."""
    return {"type": "video", "video": clip, "video_metadata": metadata(clip, fps), "do_sample_frames": False}


def asked(*blocks: dict, text: str = "What moves in it?") -> list[dict]:
    """One user message with its images and videos before the text."""
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": text}]}]


def image(name: str, size: tuple[int, int] = (140, 140)) -> dict:
    """An image block."""
    return {"type": "image", "image": photo(name, size)}


def native(processor, rows: list[list[dict]], **kwargs) -> dict:
    """Rows through the stock processor: every frame that a block of `video` holds, as tensors."""
    blocks = [[block for message in row for block in message["content"]] for row in rows]
    bare = [[message | {"content": list(map(_empty, message["content"]))} for message in row] for row in rows]
    videos = [[block["video"] for block in row if block["type"] == "video"] for row in blocks]
    facts = [[block["video_metadata"] for block in row if block["type"] == "video"] for row in blocks]
    images = [[block["image"] for block in row if block["type"] == "image"] for row in blocks]
    options = {"videos": videos, "video_metadata": facts, "do_sample_frames": False} if any(videos) else {}
    batch = processor(
        text=processor.apply_chat_template(bare, add_generation_prompt=True, tokenize=False),
        images=images if any(images) else None,
        padding=True,
        return_tensors="pt",
        **options,
        **kwargs,
    )
    batch.pop("labels", None)
    return batch


def _empty(block: dict) -> dict:
    return {name: value for name, value in block.items() if name in ("type", "text")}
