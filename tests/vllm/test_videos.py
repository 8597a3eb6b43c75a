"""Rollouts by vLLM take no videos, and say so before the engine is asked."""

import pytest

from hf_vlm_rl import ImageError
from hf_vlm_rl.front.prompts import encode_prompts
from tests.videos import asked, image, moving, video


@pytest.mark.parametrize("kind", ["video", "image"])
def test_a_prompt_with_a_video_is_refused_with_its_row(kind, policy_for):
    clip = video(moving("cat"))
    block = clip if kind == "video" else {"type": "image", "image": clip}
    prompts = [asked(image("cat")), asked(block)]
    with pytest.raises(ImageError, match=r"Row 1: a prompt has a video.*use_vllm=False"):
        encode_prompts(policy_for("qwen2_5_vl").processing_class, prompts, {})
