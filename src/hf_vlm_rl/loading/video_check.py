"""Videos in the self-check: small clips, as a policy and as its stock model get them.

If the two differ, the model is not refused: it may be used with images, and takes no videos.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..families.derive_inputs import WIDE, noise, prompt

# Frames a second, and the numbers of frames of two clips: no temporal patch divides both alike.
RATE, LENGTHS = 2.0, (4, 6)


def video_batches(policy: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """For each clip: its name, the policy's batch and the stock model's batch, on the CPU."""
    processing = policy.processing_class
    native = processing.native()
    for length in LENGTHS:
        clip = np.stack([np.asarray(noise(WIDE, seed)) for seed in range(length)])
        metadata = _metadata(clip)
        text = prompt(native, 1, kind="video")
        video = {"video": clip, "video_metadata": metadata, "do_sample_frames": False}
        ours = processing(images=[[video]], text=[text], return_tensors="pt")
        stock = native(
            videos=[[clip]],
            text=[text],
            return_tensors="pt",
            videos_kwargs={
                "video_metadata": [[metadata]],
                "do_sample_frames": False,
                "return_metadata": True,
            },
        )
        tensors = {name: value for name, value in stock.items() if isinstance(value, torch.Tensor)}
        yield f"a video of {length} frames", dict(ours), tensors


def _metadata(clip: np.ndarray) -> dict[str, Any]:
    frames, height, width, _ = clip.shape
    return {
        "total_num_frames": frames,
        "fps": RATE,
        "frames_indices": list(range(frames)),
        "duration": frames / RATE,
        "width": width,
        "height": height,
    }
