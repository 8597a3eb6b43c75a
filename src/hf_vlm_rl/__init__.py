"""Vision-language models as policies for TRL's stock trainers."""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import CheckpointError, ImageError, RewardError, TicketError, UnsupportedModelError

if TYPE_CHECKING:
    from .auto import AutoVLMPolicy
    from .auto_scored import AutoVLMRewardModel, AutoVLMValueModel
    from .critic import shared_critic
    from .families import VLMFamily, register_family
    from .policy import VLMPolicy
    from .processing import VLMTokenizer
    from .registration import register
    from .reward_model import RewardFunctionModel
    from .store import ImageStore
    from .tickets import TicketCodec

__version__ = "0.1.0"

# Loaded on first use: `import hf_vlm_rl` neither imports torch nor touches transformers or TRL.
_HOME = {
    "AutoVLMPolicy": "auto",
    "AutoVLMRewardModel": "auto_scored",
    "AutoVLMValueModel": "auto_scored",
    "ImageStore": "store",
    "RewardFunctionModel": "reward_model",
    "TicketCodec": "tickets",
    "VLMFamily": "families",
    "VLMPolicy": "policy",
    "VLMTokenizer": "processing",
    "register": "registration",
    "register_family": "families",
    "shared_critic": "critic",
}

__all__ = [
    "AutoVLMPolicy",
    "AutoVLMRewardModel",
    "AutoVLMValueModel",
    "CheckpointError",
    "ImageError",
    "ImageStore",
    "RewardError",
    "RewardFunctionModel",
    "TicketCodec",
    "TicketError",
    "UnsupportedModelError",
    "VLMFamily",
    "VLMPolicy",
    "VLMTokenizer",
    "register",
    "register_family",
    "shared_critic",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
