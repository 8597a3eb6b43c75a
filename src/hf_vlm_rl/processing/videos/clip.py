"""Opens whatever users call a video, and decodes single frames of it.

Files are decoded with PyAV: it brings FFmpeg along in its wheel, reads from memory, and depends on no version
of torch.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import PIL.Image

from ..._install import pip_install
from ...errors import ImageError
from ..images.disk import content_hash
from ..images.fetch import fetch
from ..images.read import load_rgb, max_image_pixels
from ..images.reference import Reference, is_url, parse
from .request import ACCEPTED, Video

# Fields of transformers' `VideoMetadata` that users may give.
FIELDS = frozenset({"total_num_frames", "fps", "width", "height", "duration", "frames_indices"})
# FFmpeg's names of containers that hold their frames themselves.
FORMATS = (
    "mov,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,ogg,asf,gif,apng,webp_pipe,h264,hevc,av1,ivf,m4v,mjpeg"
)


class Clip(Protocol):
    """An opened video.

    Attributes:
        metadata: Fields of transformers' `VideoMetadata`: at least `total_num_frames` and `fps`, which may be
            None for frames that came without one.
    """

    metadata: dict[str, Any]

    def frames(self, indices: Sequence[int]) -> Iterator[PIL.Image.Image]:
        """The upright RGB frames at ascending indices, which may repeat, one after the other."""


def identity(video: Video) -> tuple | None:
    """A key that tells a video's file from other files, without decoding.

    None for frames in memory, and for an address: what it answers may change.

    Raises:
        ImageError: If there is no such file.
    """
    if _is_frames(video.source):
        return None
    reference = _reference(video.source)
    if reference["bytes"] is not None:
        return "bytes", content_hash(reference["bytes"]), len(reference["bytes"])
    path = reference["path"]
    if is_url(path):
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return "file", os.path.realpath(path), status.st_mtime_ns, status.st_size


@contextmanager
def opened(video: Video) -> Iterator[Clip]:
    """A context in which a video is open.

    Raises:
        ImageError: If it is no video, or the caller's metadata do not fit it.
    """
    if _is_frames(video.source):
        yield _FrameList(video.source, video.metadata)
        return
    if video.metadata is not None:
        raise ImageError("Got video_metadata for a video file, which has its own. Expected none.")
    reference = _reference(video.source)
    data: bytes | None = reference["bytes"]
    if reference["bytes"] is not None:
        name = "the bytes of a video"
    else:
        path, name = reference["path"], f"the video {reference['path']!r}"
        data = fetch(path, "video") if is_url(path) else None
    source = _file(path) if data is None else io.BytesIO(data)
    with ExitStack() as stack:
        try:
            # Not playlists: FFmpeg would open the files and addresses that they name.
            container = stack.enter_context(_av().open(source, options={"format_whitelist": FORMATS}))
            clip = _FileClip(container, name)
        except ImageError:
            raise
        except Exception as error:  # FFmpeg's errors, and what PyAV meets in their metadata
            raise ImageError(f"Cannot open {name}: {error}. Expected {ACCEPTED}.") from error
        yield clip


class _FileClip:
    def __init__(self, container: Any, name: str):
        if not container.streams.video:
            raise ImageError(f"{name} has no video stream. Expected a video file.")
        self._container, self._name = container, name
        stream = self._stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        total = stream.frames or self._counted()
        rate = stream.average_rate or stream.guessed_rate
        if not total or not rate:
            raise ImageError(f"{name} has {total} frames at a rate of {rate}. Expected a video with frames.")
        self._check_pixels(stream)
        self.metadata = {
            "total_num_frames": int(total),
            "fps": float(rate),
            "width": stream.width,
            "height": stream.height,
            "duration": float(total / rate),
        }

    def frames(self, indices: Sequence[int]) -> Iterator[PIL.Image.Image]:
        wanted = iter(indices)
        index = next(wanted, None)
        error: Exception | None = None
        try:
            for place, frame in enumerate(self._container.decode(self._stream)):
                if index is None:
                    return
                image = None
                while index == place:
                    # Only wanted frames are converted to RGB, each once.
                    image = self._upright(frame) if image is None else image
                    yield image
                    index = next(wanted, None)
        except ImageError:
            raise
        except Exception as broken:  # as in `opened`
            error = broken
        if index is not None:
            raise ImageError(
                f"{self._name} has no frame {index} that can be decoded, of "
                f"{self.metadata['total_num_frames']} that its header names"
                f"{'' if error is None else f' ({error})'}. Expected a complete file; re-create it."
            ) from error

    def _upright(self, frame: Any) -> PIL.Image.Image:
        self._check_pixels(frame)  # which may differ from what the header says
        image = frame.to_image()
        turn = frame.rotation % 360
        return image if turn == 0 else image.rotate(turn, expand=True)

    def _check_pixels(self, sized: Any) -> None:
        if sized.width * sized.height > max_image_pixels():
            raise ImageError(
                f"{self._name} has frames of {sized.width} x {sized.height} pixels, more than "
                f"{max_image_pixels()}. Make it smaller."
            )

    def _counted(self) -> int:
        """Number of frames of a container whose header does not say it: counts packets, decodes none."""
        count = sum(packet.size > 0 for packet in self._container.demux(self._stream))
        self._container.seek(0)
        return count


class _FrameList:
    def __init__(self, source: Any, metadata: Mapping[str, Any] | None):
        self._frames = _split(source)
        if not len(self._frames):
            raise ImageError(f"Got a video without frames. Expected {ACCEPTED}.")
        fields = {name: value for name, value in (metadata or {}).items() if value is not None}
        if unknown := sorted(fields.keys() - FIELDS):
            raise ImageError(f"Got video_metadata with {unknown}. Expected some of {sorted(FIELDS)}.")
        count = len(self._frames)
        self.metadata = {"total_num_frames": count, "fps": None} | fields
        if "frames_indices" in fields and len(fields["frames_indices"]) != count:
            raise ImageError(
                f"Got {count} frames and frames_indices of {len(fields['frames_indices'])}. "
                "Expected one index for each frame."
            )
        if self.metadata["total_num_frames"] != count and "frames_indices" not in fields:
            raise ImageError(
                f"Got {count} frames of a video of total_num_frames={self.metadata['total_num_frames']}. "
                "Expected frames_indices beside it, which say which of them these are; or leave it out."
            )

    def frames(self, indices: Sequence[int]) -> Iterator[PIL.Image.Image]:
        for index in indices:
            try:
                yield load_rgb(self._frames[index])
            except ImageError as error:
                raise ImageError(f"frame {index}: {error}") from error


def _split(source: Any) -> Sequence:
    if isinstance(source, list | tuple):
        return source
    shape = tuple(source.shape)
    if len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise ImageError(f"Got a video array of shape {shape}. Expected (T, H, W, 3) or (T, 3, H, W).")
    return source


def _is_frames(source: Any) -> bool:
    # Arrays of numpy and torch alike.
    return isinstance(source, list | tuple) or hasattr(source, "shape")


def _reference(source: Any) -> Reference:
    try:
        return parse(source)
    except ImageError as error:
        raise ImageError(f"Got a video that cannot be opened ({error}). Expected {ACCEPTED}.") from error


def _file(path: str) -> str:
    if not Path(path).is_file():
        raise _unreadable(path, FileNotFoundError("No such file"))
    return path


def _unreadable(path: Any, error: Exception) -> ImageError:
    return ImageError(
        f"Cannot read the video {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}. Expected "
        "the path of a video file; check the path and its permissions."
    )


def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise ImageError(
            f"Decoding a video file needs PyAV: {pip_install('video')}. Or pass frames, as a list or "
            "an array."
        ) from error
    return av
