"""DINOv2 ViT-S/14, from the ONNX file of a package, as the weights of InternVL's vision tower."""

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper

from .packages import TOWER

PATCH_SIZE = 14  # pixels
HIDDEN = 384
SIDE = 37  # patches; DINOv2's positions are those of 518 x 518 pixels
# What the exporter made of the position embeddings: that of the class token, and those of the patches.
CLASS_POSITION, PATCH_POSITIONS = "onnx::Concat_1957", "onnx::Reshape_1962"
PREFIX = "backbone."
RENAMED = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.projection_layer",
    "layer_scale1.lambda1": "lambda_1",
    "layer_scale2.lambda1": "lambda_2",
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
}


def vision_config(image_size: int) -> dict:
    """`vision_config` of an InternVL whose tower is DINOv2-S, for square images of `image_size` pixels."""
    return {
        "image_size": [image_size, image_size],
        "patch_size": [PATCH_SIZE, PATCH_SIZE],
        "hidden_size": HIDDEN,
        "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "attention_bias": True,
        "layer_norm_eps": 1e-6,
        "use_mean_pooling": False,
        "norm_type": "layer_norm",
        "use_qk_norm": False,
        "hidden_act": "gelu",
        "use_absolute_position_embeddings": True,
        "use_mask_token": False,
    }


def load_graph(folder: Path) -> onnx.GraphProto:
    """The ONNX graph of the unpacked package."""
    return onnx.load(folder / TOWER.wanted[0]).graph


def tower_weights(graph: onnx.GraphProto, image_size: int) -> dict[str, torch.Tensor]:
    """The state dict of InternVL's vision tower.

    Args:
        graph: From `load_graph`.
        image_size: Side of the square images in pixels, a multiple of `PATCH_SIZE`.
    """
    stored = {tensor.name: torch.tensor(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    named = {
        name.removeprefix(PREFIX): tensor for name, tensor in stored.items() if name.startswith(PREFIX)
    } | _linear_weights(graph, stored)
    weights = {_renamed(name): tensor for name, tensor in named.items()}
    weights["embeddings.position_embeddings"] = _positions(stored, image_size // PATCH_SIZE)
    return weights


def _linear_weights(graph: onnx.GraphProto, stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights that the exporter transposed and left without a name: their nodes name the layer."""
    weights = {}
    for node in graph.node:
        inputs = [name for name in node.input if name.startswith("onnx::MatMul")]
        if node.op_type == "MatMul" and node.name.startswith("/backbone/") and inputs:
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{layer}.weight"] = stored[inputs[0]].T.contiguous()
    return weights


def _positions(stored: dict[str, torch.Tensor], side: int) -> torch.Tensor:
    """Position embeddings (1, 1 + side * side, `HIDDEN`), brought from 37 x 37 patches to side x side."""
    grid = stored[PATCH_POSITIONS].reshape(1, SIDE, SIDE, HIDDEN).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    patches = grid.permute(0, 2, 3, 1).reshape(1, side * side, HIDDEN)
    return torch.cat([stored[CLASS_POSITION].reshape(1, 1, HIDDEN), patches], dim=1)


def _renamed(name: str) -> str:
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    return name
