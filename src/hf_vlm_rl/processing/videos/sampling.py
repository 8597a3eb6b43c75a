"""Which frames of a video the model sees; each video is opened and decoded once."""

import json
from collections.abc import Iterator, Mapping, Sequence
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
            given = clip.metadata.get("frames_indices")
            places = _sampled(metadata, processor, dict(sampling), given)
            if places is None:
                places = list(range(metadata.total_num_frames if given is None else len(given)))
                metadata.frames_indices = places if given is None else given
            else:
                metadata.frames_indices = places
            facts = {name: metadata[name] for name in metadata if name != "video_backend"}
            facts["frames_indices"] = [int(index) for index in facts["frames_indices"]]
            stored = self._store.put_frames(_of_one_size(clip.frames(places)), facts)
        if file is not None:
            self._decoded.discard(key)
            self._decoded.put(key, stored)
        return stored


def _nbytes(video: StoredVideo) -> int:
    return FRAME_BYTES * len(video.frames)


def _sampled(
    metadata: VideoMetadata, processor: Any, sampling: dict[str, Any], given: Sequence[int] | None
) -> list[int] | None:
    """Indices of the frames to take, ascending; None for all.

    `given` are the caller's own indices, for frames in memory. If the video had more frames than these, they
    are a sample, and none is drawn of it.
    """
    held = metadata.total_num_frames if given is None else len(given)
    is_sample = held != metadata.total_num_frames
    wanted = sampling.pop("do_sample_frames", None)
    if wanted is None:
        wanted = RATE in sampling or COUNT in sampling or (processor.do_sample_frames and not is_sample)
    if wanted and is_sample:
        raise ImageError(
            f"Got {held} frames, sampled of {metadata.total_num_frames} as frames_indices says, and shall "
            "sample them again. Leave out fps, num_frames and do_sample_frames, or give all frames."
        )
    if not wanted:
        if held > MOST_FRAMES:
            raise ImageError(
                f"Got a video of {held} frames that is not sampled; more than "
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
