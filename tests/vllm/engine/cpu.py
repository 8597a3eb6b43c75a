"""What vLLM needs to run tiny models on a CPU in float32, imported before vLLM."""

import os
import socket

import torch
from torch.nn import functional

# Before vLLM reads them.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_MODELSCOPE": "0",
}


def plain_matrix_products() -> None:
    """vLLM's products on a CPU take the weights out of their layers, where none can be loaded any more."""
    from vllm.model_executor.layers import utils

    def plain(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
