"""Models that give rows a number, for trainers that want a model where others take functions.

Which one to take:

- `RewardFunctionModel`: PPO's `reward_model` where a function can tell what is right: an answer that is
  compared, a box, a format. Nothing is loaded or trained. GRPO and RLOO take the functions themselves.
- `AutoVLMRewardModel`: where only people can tell. Train it on pairs of answers with `RewardTrainer`; it is
  then PPO's `reward_model`, and inside a `ModelReward` a reward function of GRPO and RLOO.
- `shared_critic`: PPO's `value_model` if the policy trains an adapter. It is a second adapter on the policy's
  own frozen weights, so it costs an adapter's memory.
- `AutoVLMValueModel`: PPO's `value_model` otherwise: all weights of the policy are trained, or the critic
  starts from another checkpoint. It costs a second model's memory.
"""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

# Loaded on first use: the models need torch and transformers.
if TYPE_CHECKING:
    from .critic import shared_critic as shared_critic
    from .load import AutoVLMRewardModel as AutoVLMRewardModel
    from .load import AutoVLMValueModel as AutoVLMValueModel
    from .model_reward import ModelReward as ModelReward
    from .reward_functions import RewardFunctionModel as RewardFunctionModel
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
