"""Runs first in every Python of the engine tests, vLLM's subprocesses included: this folder is on PYTHONPATH.

The registry's torchvision is built for CUDA's torch. Beside the CPU's its operators are not loaded, and its
import asks for two of them.
"""

import importlib.abc
import sys

OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DefineOperators(importlib.abc.MetaPathFinder):
    """Defines the operators when torchvision is imported, and finds nothing."""

    library = None

    def find_spec(self, name, path=None, target=None):
        """Called with every name that is imported."""
        if name == "torchvision" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for operator in OPERATORS:
                self.library.define(operator + SCHEMA)


sys.meta_path.insert(0, DefineOperators())
