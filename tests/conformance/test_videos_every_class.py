"""Every class that takes videos computes what its stock model computes; every other one says why not."""

import numpy as np
import pytest
import torch

from hf_vlm_rl import UnsupportedModelError
from tests.videos import asked, image, metadata, moving, video

from .every import CLAIMED, VIDEO_CLASSES, logits
from .rounding import assert_equal, rtol_of_rows
from .test_videos import beside


def stock_batch(twins, clip: np.ndarray, text: str) -> dict:
    typed = {"return_mm_token_type_ids": True} if twins.policy.family.token_types else {}
    prompt = twins.processor.apply_chat_template(
        [asked({"type": "video"}, text=text)], add_generation_prompt=True, tokenize=False
    )
    options = {"video_metadata": [[metadata(clip)]], "do_sample_frames": False, "return_metadata": True}
    batch = twins.processor(
        text=prompt, videos=[[clip]], return_tensors="pt", padding=True, videos_kwargs=options, **typed
    )
    for name in ("video_metadata", "labels"):
        batch.pop(name, None)
    return batch


@pytest.mark.parametrize("model_type", VIDEO_CLASSES)
def test_a_batch_of_clips_equals_stock_row_by_row(twins):
    questions = ("What moves?", "Which way does the camera go in this one?")
    clips = (moving("astronaut"), moving("coffee", 6))
    rows = [asked(video(clip), text=text) for clip, text in zip(clips, questions, strict=True)]
    batch = twins.tickets(beside([*rows, asked(image("cat"))]))
    with torch.no_grad():
        found = twins.policy(**batch).logits
    for row, (clip, text) in enumerate(zip(clips, questions, strict=True)):
        seen = batch["attention_mask"][row].bool()
        expected = logits(twins.bare, stock_batch(twins, clip, text))
        assert_equal(found[row][seen], expected, rtol_of_rows(twins.policy))
    assert not twins.processing.state.videos.refusal


@pytest.mark.parametrize("model_type", [name for name in CLAIMED if name not in VIDEO_CLASSES])
def test_the_others_refuse_and_say_why(twins):
    assert twins.processing.state.videos.refusal.endswith(".")
    clip = video(moving("astronaut"))
    for given in ({"images": [[clip]]}, {"videos": [[clip]]}):
        with pytest.raises(UnsupportedModelError, match=r"^Got a video\. ."):
            twins.processing(text=["What moves?"], **given)
