"""Rollouts with vLLM: TRL's GRPO trainer and the engine see the same prompts, with the same images."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .in_process import read_tickets as read_tickets
    from .rollout import vllm_rollout as vllm_rollout
    from .weight_names import match_weight_names as match_weight_names
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
