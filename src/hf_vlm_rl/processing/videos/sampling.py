"""Which frames of a video the model sees; each video is opened and decoded once."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from transformers.video_utils import VideoMetadata

from ...errors import ImageError
from ..images.lru import ByteBoundedCache
from ..images.store import ImageStore
from ..images.stored import StoredVideo
from .clip import identity, opened
from .request import Video

# Options of a block that say which frames are wanted.
RATE, COUNT = "fps", "num_frames"
SAMPLING = frozenset({RATE, COUNT, "min_frames", "max_frames", "max_fps", "do_sample_frames"})

# Without sampling, the model gets every frame of a video, and an hour has a hundred thousand.
MOST_FRAMES = 1024

# A frame's ticket takes eight bytes, and Python some more.
FRAME_BYTES, DECODED_BYTES = 40, 64 << 20


class VideoReader:
    """Samples videos and puts their frames into a store."""

    def __init__(self, store: ImageStore):
        self._store = store
        self._decoded: ByteBoundedCache[str, StoredVideo] = ByteBoundedCache(DECODED_BYTES, _nbytes)

    def read(self, video: Video, processor: Any, sampling: Mapping[str, Any]) -> StoredVideo:
        """Store the frames that the native video processor samples.

        Raises:
            ImageError: If the video cannot be read, or not be sampled so.
        """
        file = identity(video)
        key = json.dumps([file, _settings(processor), dict(sampling)], default=repr, sort_keys=True)
        stored = None if file is None else self._decoded.get(key)
        # The store deletes frames that it moved to disk, the oldest first: some may be gone.
        if stored is not None and self._store.holds(stored):
            return stored
        with opened(video) as clip:
            metadata = VideoMetadata(**clip.metadata)
            sampled = _sampled(metadata, processor, dict(sampling))
            indices = list(range(metadata.total_num_frames)) if sampled is None else sampled
            # Whoever passes `frames_indices` with frames has sampled them already.
            places = range(len(clip.metadata["frames_indices"])) if _given(clip, sampled) else indices
            metadata.frames_indices = clip.metadata["frames_indices"] if _given(clip, sampled) else indices
            facts = {name: metadata[name] for name in metadata if name != "video_backend"}
            facts["frames_indices"] = [int(index) for index in facts["frames_indices"]]
            stored = self._store.put_frames(_of_one_size(clip.frames(list(places))), facts)
        if file is not None:
            self._decoded.discard(key)
            self._decoded.put(key, stored)
        return stored


def _nbytes(video: StoredVideo) -> int:
    return FRAME_BYTES * len(video.frames)


def _given(clip: Any, sampled: list[int] | None) -> bool:
    return sampled is None and "frames_indices" in clip.metadata


def _sampled(metadata: VideoMetadata, processor: Any, sampling: dict[str, Any]) -> list[int] | None:
    """Indices of the frames to take, ascending; None for all."""
    wanted = sampling.pop("do_sample_frames", None)
    if wanted is None:
        wanted = RATE in sampling or COUNT in sampling or processor.do_sample_frames
    if not wanted:
        if metadata.total_num_frames > MOST_FRAMES:
            raise ImageError(
                f"Got a video of {metadata.total_num_frames} frames that is not sampled; more than "
                f"{MOST_FRAMES} would be taken. Say how: fps=2 or num_frames=32 in its block."
            )
        return None
    try:
        indices = processor.sample_frames(metadata=metadata, **sampling)
    except (TypeError, ValueError) as error:
        raise ImageError(
            f"{type(processor).__name__} cannot sample a video of {metadata.total_num_frames} frames, "
            f"{metadata.fps} a second, with {sampling}: {error}"
        ) from error
    return [int(index) for index in indices]


def _of_one_size(frames: Iterator[Any]) -> Iterator[Any]:
    first = None
    for frame in frames:
        first = first or frame.size
        if frame.size != first:
            raise ImageError(f"Got frames of {first} and of {frame.size} pixels. Expected one size.")
        yield frame


def _settings(processor: Any) -> str:
    return repr(sorted((name, value) for name, value in vars(processor).items() if not name.startswith("_")))
