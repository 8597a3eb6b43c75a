"""The general rule that makes a config tiny: what a field is called says how small it may be."""

from collections.abc import Mapping
from typing import Any

# Names of fields, with their value in a decoder and in a tower (vision, audio, q-former).
_SIZES: tuple[tuple[str, int, int], ...] = (
    ("hidden_size d_model embed_dim width n_embd dim", 64, 32),
    ("out_hidden_size projection_dim text_hidden_size hidden_dim_out", 64, 64),
    ("intermediate_size ffn_dim encoder_ffn_dim mlp_dim decoder_ffn_dim", 128, 64),
    ("projector_hidden_size merger_intermediate_size", 128, 64),
    ("moe_intermediate_size shared_expert_intermediate_size intermediate_size_mlp", 32, 32),
    ("moe_shared_expert_intermediate_size ffn_hidden_size expert_intermediate_size", 32, 32),
    ("num_hidden_layers num_layers depth n_layers n_layer layers num_blocks", 2, 2),
    ("encoder_layers decoder_layers", 2, 2),
    ("num_attention_heads num_heads n_heads n_head attention_heads encoder_attention_heads", 4, 2),
    ("num_key_value_heads num_kv_heads n_kv_heads swa_num_key_value_heads", 2, 2),
    ("head_dim global_head_dim attention_head_dim swa_head_dim", 16, 16),
    ("num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts", 4, 4),
    ("n_group topk_group num_expert_group", 1, 1),
    ("q_lora_rank qk_head_dim", 32, 32),
    ("kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim", 16, 16),
    ("image_size", 56, 56),
    # Shorter than the prompts of tests.
    ("sliding_window sliding_window_size attention_chunk_size", 64, 64),
)
_DECODER = {name: decoder for names, decoder, _ in _SIZES for name in names.split()}
_TOWER = {name: tower for names, _, tower in _SIZES for name in names.split()}

_EXPERTS_USED = ("num_experts_per_tok", "top_k", "moe_k", "moe_top_k", "top_k_experts")
_LAYER_KINDS = ("layer_types", "mlp_layer_types", "ffn_types", "rope_scaling_layers")
# Keyed by layer; the config's own constructor makes it anew for the layers that are left.
_BY_LAYER = ("per_layer_config",)
_TOWERS = ("vision", "vq", "audio", "qformer", "perceiver", "image", "adapter")


def shrink(fields: Mapping[str, Any], vocabulary: int, *, tower: bool = False) -> dict[str, Any]:
    """`fields` of a config with small sizes, two layers, and `vocabulary` words in its decoder."""
    return {
        name: _small(name, value, vocabulary, tower)
        for name, value in fields.items()
        if name not in _BY_LAYER
    }


def _small(name: str, value: Any, vocabulary: int, tower: bool) -> Any:
    sizes = _TOWER if tower else _DECODER
    if isinstance(value, dict) and name.endswith("_config"):
        return shrink(value, vocabulary, tower=any(word in name for word in _TOWERS))
    if isinstance(value, dict) and name in ("rope_parameters", "rope_scaling"):
        return _small_rope(value)
    if isinstance(value, list) and name in _LAYER_KINDS:
        return [value[0], next((kind for kind in value if kind != value[0]), value[0])] if value else value
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if name in _EXPERTS_USED:
        return min(value, 2)
    if not tower and name == "vocab_size":
        return vocabulary
    if not tower and name == "max_position_embeddings":
        return 4096
    return sizes.get(name, value)


def _small_rope(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary positions whose parts fill a head of sixteen; also for a dictionary by kind of layer."""
    small = {name: _small_rope(value) if isinstance(value, dict) else value for name, value in rope.items()}
    if isinstance(small.get("mrope_section"), list):
        small["mrope_section"] = [4, 2, 2] if small.get("mrope_interleaved") else [2, 3, 3]
    return small
