"""Vision-language models as policies for TRL's stock trainers."""

from typing import TYPE_CHECKING

from ._lazy import loaded_on_use
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

if TYPE_CHECKING:
    from .families import BoxFormat, VLMFamily
    from .families.box_coordinates import BoxCoordinates
    from .families.registry import register_family
    from .hub import push_adapter, push_folder, push_with_card, save_adapter
    from .hub.cards import AdapterCardData, Evaluation
    from .loading.auto import AutoVLMPolicy
    from .loading.register import register
    from .policy.policy import VLMPolicy
    from .processing.images.store import ImageStore
    from .processing.ticket_codec import TicketCodec
    from .processing.tokenizer import VLMTokenizer
    from .scoring.critic import shared_critic
    from .scoring.load import AutoVLMRewardModel, AutoVLMValueModel
    from .scoring.reward_functions import RewardFunctionModel

__version__ = "0.1.0"

# Loaded on first use: `import hf_vlm_rl` neither imports torch nor touches transformers or TRL.
_HOME = {
    "AdapterCardData": "hub.cards",
    "AutoVLMPolicy": "loading.auto",
    "AutoVLMRewardModel": "scoring.load",
    "AutoVLMValueModel": "scoring.load",
    "BoxCoordinates": "families.box_coordinates",
    "BoxFormat": "families",
    "Evaluation": "hub.cards",
    "ImageStore": "processing.images.store",
    "RewardFunctionModel": "scoring.reward_functions",
    "TicketCodec": "processing.ticket_codec",
    "VLMFamily": "families",
    "VLMPolicy": "policy",
    "VLMTokenizer": "processing",
    "push_adapter": "hub",
    "push_folder": "hub",
    "push_with_card": "hub",
    "register": "loading.register",
    "register_family": "families",
    "save_adapter": "hub",
    "shared_critic": "scoring.critic",
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
__dir__ = __all__.copy  # completion in a shell knows the names that are not loaded yet
