"""What the native processor makes of a video: inputs of the model, and the text that stands for the video."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import ProcessorMixin

from ...errors import ImageError, UnsupportedModelError
from ..images.processed import ProcessedImage
from ..images.store import ImageStore
from ..images.stored import StoredVideo
from ..native_call import image_inputs, kwargs_asked
from .request import Video
from .sampling import COUNT, RATE, SAMPLING, VideoReader

# Arguments of video processors that concern a whole call: no single video may set them.
_OF_THE_CALL = frozenset(
    {"return_tensors", "return_metadata", "video_metadata", "input_data_format", "device"}
)


class Videos:
    """What a processing class knows of videos; it asks the native processor when the first one comes.

    `ProcessingState` says what the ids and the placeholder are. `refusal` is why the model takes no videos,
    or "".
    """

    def __init__(
        self,
        store: ImageStore,
        image_id: int,
        video_id: int | None,
        placeholder: str | None,
        refusal: str = "",
    ):
        self._store, self._image_id, self._video_id = store, image_id, video_id
        self.placeholder = placeholder
        self.refusal = refusal
        self._reader = VideoReader(store)
        self._asked: dict[str, dict[str, Any]] = {}

    def __getstate__(self) -> dict:
        # Without what is cached on use: `datasets` hashes this state and must find its own cache again.
        return self.__dict__ | {"_asked": {}}

    def check(self) -> None:
        """Raise an `UnsupportedModelError` if the model takes no videos."""
        if self.refusal:
            raise UnsupportedModelError(f"Got a video. {self.refusal}")

    def ticket(self, native: ProcessorMixin, video: Video, asked: Mapping[str, Any]) -> int:
        """Sample a video, store its frames, and return its ticket; `asked` includes the defaults of the call.

        Raises:
            ImageError: If the video or an option cannot be used.
        """
        processor = native.video_processor
        known = processor.valid_kwargs.__annotations__.keys() - _OF_THE_CALL
        if unknown := sorted(video.options.keys() - known):
            raise ImageError(
                f"Got a video with {unknown}. {type(processor).__name__} knows {sorted(known)}; frames in "
                "memory may have video_metadata."
            )
        defaults = self._asked_by_default(native)
        settings = {
            name: value
            for name, value in asked.items()
            if name in known and (name not in defaults or defaults[name] != value)
        }
        options = settings | dict(video.options)
        own = {name: options.pop(name) for name in sorted(SAMPLING & options.keys())}
        general = {name: value for name, value in defaults.items() if name in SAMPLING and value is not None}
        if own.keys() & {RATE, COUNT}:  # either of the two replaces both defaults
            general = {name: value for name, value in general.items() if name not in (RATE, COUNT)}
        stored = self._reader.read(video, processor, general | own)
        return self._store.put(stored, options)

    def process(
        self, native: ProcessorMixin, video: StoredVideo, options: Mapping[str, Any]
    ) -> ProcessedImage:
        """What the native processor makes of the frames of a video."""
        frames = np.stack([np.asarray(self._store.frame(ticket)) for ticket in video.frames])
        twin, replacements = copy.copy(native), []
        process = twin._process_videos

        def recorded(videos: Any, **kwargs: Any) -> tuple[Any, list[str]]:
            inputs, texts = process(videos, **kwargs)
            replacements.extend(texts)
            return inputs, texts

        vars(twin)["_process_videos"] = recorded  # hides the method of the class
        arguments = {
            "video_metadata": [copy.deepcopy(dict(video.metadata))],  # processors fill up its lists
            "do_sample_frames": False,
            "input_data_format": "channels_first",
            "return_metadata": True,
        }
        pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()
        out = twin(
            videos=[[pixels]],
            text=[self.placeholder],
            videos_kwargs={**options, **arguments},
            return_tensors="pt",
        )
        ids = torch.as_tensor(out["input_ids"][0])
        own = 0 if self._video_id is None else int((ids == self._video_id).sum())
        inputs = {name: value for name, value in image_inputs(out).items() if name != "video_metadata"}
        tokens = own or int((ids == self._image_id).sum())
        if not tokens:
            raise UnsupportedModelError(
                f"{type(native).__name__} writes {replacements[0][:80]!r} for a video, which has none of the "
                "model's image or video tokens. Expected the processor of the checkpoint."
            )
        return ProcessedImage(inputs, replacements[0], tokens, video=True, output="video" if own else "image")

    def settings(self, native: Any) -> str:
        """All settings, besides the video, that the result depends on, as a string to compare."""
        if self.refusal:
            return ""
        values = vars(native.video_processor).items()
        return repr([(name, value) for name, value in values if not name.startswith("_")])

    def _asked_by_default(self, native: ProcessorMixin) -> dict[str, Any]:
        """What the native processor passes to the video processor if its caller sets no argument."""
        settings = self.settings(native)
        if settings not in self._asked:
            self._asked[settings] = _asked_by_default(native)
        return self._asked[settings]


def _asked_by_default(native: Any) -> dict[str, Any]:
    blank = np.zeros((2, 32, 32, 3), dtype=np.uint8)
    conversation = [{"role": "user", "content": [{"type": "video", "video": blank}]}]

    def call(twin: Any) -> None:
        if native.chat_template is None:
            twin(videos=[[blank]], text=[native.video_token])
        else:
            twin.apply_chat_template(conversation, tokenize=True, return_dict=True)

    asked = kwargs_asked(native, "_process_videos", call)
    if asked is None:
        raise UnsupportedModelError(
            f"{type(native).__name__} processes videos by rules that are not known here."
        )
    return asked
