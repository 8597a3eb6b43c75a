"""Models with experts and hybrid decoders: what of them is a layer, and what a fused parameter."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoder:
    """The layers of a tiny decoder, with paths below it.

    Attributes:
        layers: Linear layers.
        experts: Fused weights of experts.
    """

    layers: frozenset[str]
    experts: frozenset[str] = frozenset()


def _below(path: str, *names: str) -> frozenset[str]:
    return frozenset(f"layers.{path}.{name}" for name in names)


def _each(path: str, *names: str) -> frozenset[str]:
    return _below(f"0.{path}", *names) | _below(f"1.{path}", *names)


_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_GATED = ("gate_proj", "up_proj", "down_proj")
_FUSED = ("gate_up_proj", "down_proj")
_DELTA = _below("0.linear_attn", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")
_LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_DENSE_THEN_SHARED = _below("0.mlp", *_GATED) | _below("1.mlp.shared_experts", *_GATED)
_SHORT = _below("0.conv", "in_proj", "out_proj")

DECODERS = {
    # Of three layers, the others of two.
    "qwen3_vl_moe": Decoder(
        _each("self_attn", *_ATTENTION) | _below("2.self_attn", *_ATTENTION),
        _each("mlp.experts", *_FUSED) | _below("2.mlp.experts", *_FUSED),
    ),
    "qwen3_5": Decoder(_DELTA | _below("1.self_attn", *_ATTENTION) | _each("mlp", *_GATED)),
    "qwen3_5_moe": Decoder(
        _DELTA
        | _below("1.self_attn", *_ATTENTION)
        | _each("mlp.shared_expert", *_GATED)
        | _each("mlp", "shared_expert_gate"),
        _each("mlp.experts", *_FUSED),
    ),
    "glm4v_moe": Decoder(
        _each("self_attn", *_ATTENTION) | _DENSE_THEN_SHARED, _below("1.mlp.experts", *_FUSED)
    ),
    "kimi_k25": Decoder(_each("self_attn", *_LATENT) | _DENSE_THEN_SHARED, _below("1.mlp.experts", *_FUSED)),
    "ernie4_5_vl_moe": Decoder(
        _each("self_attn", *_ATTENTION) | _DENSE_THEN_SHARED,
        _below("1.mlp.text_moe.experts", *_FUSED) | _below("1.mlp.vision_moe.experts", *_FUSED),
    ),
    "llama4": Decoder(
        _each("self_attn", *_ATTENTION) | _each("feed_forward.shared_expert", *_GATED),
        _each("feed_forward.experts", *_FUSED),
    ),
    "lfm2_vl": Decoder(
        _SHORT
        | _below("1.self_attn", "q_proj", "k_proj", "v_proj", "out_proj")
        | _each("feed_forward", "w1", "w2", "w3")
    ),
}
MIXTURES = [model_type for model_type, decoder in DECODERS.items() if decoder.experts]
