"""The directory that processes of a machine share for images and notes."""

import os
from pathlib import Path

CACHE_VARIABLE = "HF_VLM_RL_CACHE"


def default_directory() -> Path:
    """`$HF_VLM_RL_CACHE`, else `hf_vlm_rl` below the Hugging Face cache."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE])
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "hf_vlm_rl"
