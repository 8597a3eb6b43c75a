"""Vision-language models as policies for TRL's stock trainers."""

from typing import TYPE_CHECKING

from ._lazy import loaded_on_use

__version__ = "0.2.0"

# Loaded on first use: `import hf_vlm_rl` neither imports torch nor touches transformers or TRL.
if TYPE_CHECKING:
    from .errors import CheckpointError as CheckpointError
    from .errors import ColumnError as ColumnError
    from .errors import DataError as DataError
    from .errors import ImageError as ImageError
    from .errors import PushError as PushError
    from .errors import RewardError as RewardError
    from .errors import TicketError as TicketError
    from .errors import UnsupportedModelError as UnsupportedModelError
    from .families import BoxFormat as BoxFormat
    from .families import VLMFamily as VLMFamily
    from .families.box_coordinates import BoxCoordinates as BoxCoordinates
    from .families.registry import register_family as register_family
    from .hub import push_adapter as push_adapter
    from .hub import push_folder as push_folder
    from .hub import push_images as push_images
    from .hub import push_with_card as push_with_card
    from .hub import save_adapter as save_adapter
    from .hub.cards import AdapterCardData as AdapterCardData
    from .hub.cards import Evaluation as Evaluation
    from .loading.auto import AutoVLMPolicy as AutoVLMPolicy
    from .loading.register import register as register
    from .policy.policy import VLMPolicy as VLMPolicy
    from .processing.ids.tokenizer import IdsTokenizer as IdsTokenizer
    from .processing.images.store import ImageStore as ImageStore
    from .processing.tickets.in_ids import TicketCodec as TicketCodec
    from .processing.tokenizer import VLMTokenizer as VLMTokenizer
    from .scoring.critic import shared_critic as shared_critic
    from .scoring.load import AutoVLMRewardModel as AutoVLMRewardModel
    from .scoring.load import AutoVLMValueModel as AutoVLMValueModel
    from .scoring.model_reward import ModelReward as ModelReward
    from .scoring.reward_functions import RewardFunctionModel as RewardFunctionModel
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
