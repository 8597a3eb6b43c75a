"""How a model takes videos, found in the signatures of its backbone; no video is processed for it."""

import inspect
from typing import Any

from .derive_parts import FEATURES

VIDEO_FEATURES = "get_video_features"
_PIXELS = "pixel_values_videos"
# What transformers calls the method that makes positions in several dimensions.
POSITIONS = "get_rope_index"
# Arguments of a backbone's forward about videos and what comes of their sampling begin so.
_OF_VIDEOS = ("video_", "second_per_grid")


def derive_videos(
    backbone: Any, processor: Any, token_types: tuple[str, ...], native_inputs: bool
) -> dict[str, Any]:
    """The fields of a `VLMFamily` that are about videos.

    Args:
        backbone: A stock multimodal backbone; its weights are not used.
        processor: Its native processor.
        token_types: `VLMFamily.token_types`.
        native_inputs: The model gets the native processor's tensors as they are.
    """
    none = {"video_features": "", "video_companions": ()}
    # Processors of models without videos lack these.
    takes = getattr(processor, "video_processor", None) is not None
    if native_inputs or not takes or not isinstance(getattr(processor, "video_token", None), str):
        return none
    accepted = inspect.signature(backbone.forward).parameters.keys()
    if _PIXELS not in accepted:
        # Without arguments of their own, frames come as images.
        frames = not hasattr(backbone, VIDEO_FEATURES)
        return {"video_features": FEATURES, "video_companions": ()} if frames else none
    if not hasattr(backbone, VIDEO_FEATURES):
        return none
    made_of = inspect.signature(getattr(backbone, VIDEO_FEATURES)).parameters.keys()
    if _PIXELS not in made_of:
        return none
    positions = getattr(backbone, POSITIONS, None)
    of_positions = inspect.signature(positions).parameters.keys() if positions is not None else set()
    names = (accepted - made_of) | (accepted & of_positions)
    companions = {name for name in names - set(token_types) if name.startswith(_OF_VIDEOS)}
    return {"video_features": VIDEO_FEATURES, "video_companions": tuple(sorted(companions))}
