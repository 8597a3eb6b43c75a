"""Vision-language models as policies for TRL's stock trainers."""

from typing import TYPE_CHECKING

from .errors import (
    CheckpointError,
    ColumnError,
    DataError,
    ImageError,
    PushError,
    RewardError,
    TicketError,
    UnsupportedModelError,
)
from .lazy import loaded_on_use

if TYPE_CHECKING:
    from .auto import AutoVLMPolicy
    from .auto_scored import AutoVLMRewardModel, AutoVLMValueModel
    from .cards import AdapterCardData, Evaluation
    from .coordinates import BoxCoordinates
    from .critic import shared_critic
    from .families import BoxFormat, VLMFamily, register_family
    from .hub import push_adapter, push_folder, push_with_card, save_adapter
    from .policy import VLMPolicy
    from .processing import VLMTokenizer
    from .registration import register
    from .reward_model import RewardFunctionModel
    from .store import ImageStore
    from .tickets import TicketCodec

__version__ = "0.1.0"

# Loaded on first use: `import hf_vlm_rl` neither imports torch nor touches transformers or TRL.
_HOME = {
    "AdapterCardData": "cards",
    "AutoVLMPolicy": "auto",
    "AutoVLMRewardModel": "auto_scored",
    "AutoVLMValueModel": "auto_scored",
    "BoxCoordinates": "coordinates",
    "BoxFormat": "families",
    "Evaluation": "cards",
    "ImageStore": "store",
    "RewardFunctionModel": "reward_model",
    "TicketCodec": "tickets",
    "VLMFamily": "families",
    "VLMPolicy": "policy",
    "VLMTokenizer": "processing",
    "push_adapter": "hub",
    "push_folder": "hub",
    "push_with_card": "hub",
    "register": "registration",
    "register_family": "families",
    "save_adapter": "hub",
    "shared_critic": "critic",
}

__all__ = [
    "AdapterCardData",
    "AutoVLMPolicy",
    "AutoVLMRewardModel",
    "AutoVLMValueModel",
    "BoxCoordinates",
    "BoxFormat",
    "CheckpointError",
    "ColumnError",
    "DataError",
    "Evaluation",
    "ImageError",
    "ImageStore",
    "PushError",
    "RewardError",
    "RewardFunctionModel",
    "TicketCodec",
    "TicketError",
    "UnsupportedModelError",
    "VLMFamily",
    "VLMPolicy",
    "VLMTokenizer",
    "push_adapter",
    "push_folder",
    "push_with_card",
    "register",
    "register_family",
    "save_adapter",
    "shared_critic",
]


__getattr__ = loaded_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
