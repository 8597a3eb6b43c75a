"""Runs first in every Python of the engine tests, vLLM's subprocesses included: this folder is on PYTHONPATH.

The registry's torchvision is built for CUDA's torch. Beside the CPU's its operators are not loaded, and its
import asks for two of them. vLLM 0.30's Pixtral, which its LLaVA imports, asks transformers for two
names that it has no more since 5.20. vLLM's products on a CPU take the weights out of their layers, where
none can be loaded any more.
"""

import importlib
import importlib.abc
import importlib.util
import sys

OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


PIXTRAL = "transformers.models.pixtral.modeling_pixtral"
PRODUCTS = "vllm.model_executor.layers.utils"


def plain_matrix_products(module):
    """Let `module`, vLLM's PRODUCTS, leave the weights in their layers."""
    from torch.nn import functional

    def plain(layer, remove_weight):
        layer.cpu_linear = functional.linear

    module.dispatch_cpu_unquantized_gemm = plain


class DefineOperators(importlib.abc.MetaPathFinder):
    """Defines what is missing when somebody is about to ask for it, and finds nothing but PRODUCTS."""

    library = None
    finding = False

    def find_spec(self, name, path=None, target=None):
        """Called with every name that is imported."""
        if name == "torchvision" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for operator in OPERATORS:
                self.library.define(operator + SCHEMA)
        if name == "vllm.model_executor.models.pixtral":
            pixtral = importlib.import_module(PIXTRAL)
            for missing in {"PixtralRotaryEmbedding", "position_ids_in_meshgrid"} - set(vars(pixtral)):
                setattr(pixtral, missing, None)  # for Pixtral's own tower; LLaVA's is CLIP
        return self._products() if name == PRODUCTS and not self.finding else None

    def _products(self):
        self.finding = True
        try:
            spec = importlib.util.find_spec(PRODUCTS)
        finally:
            self.finding = False
        execute = spec.loader.exec_module

        def then_plain(module):
            execute(module)
            plain_matrix_products(module)

        spec.loader.exec_module = then_plain
        return spec


sys.meta_path.insert(0, DefineOperators())
