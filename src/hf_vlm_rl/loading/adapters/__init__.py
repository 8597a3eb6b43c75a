"""PEFT adapters as checkpoints: find the base, load it as a policy, attach the adapter, check it.

`source`: the files and the base that they name. `load`: both together. `attach`: the tensors.
`effect`: whether they do anything.
"""

from .load import check_processor, load_on_base
from .source import Adapter, find_adapter

__all__ = ["Adapter", "check_processor", "find_adapter", "load_on_base"]
