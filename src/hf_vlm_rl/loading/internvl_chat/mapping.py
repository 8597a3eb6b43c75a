"""Names and layouts of the original weights, for transformers' conversion machinery.

Written once, in the loading direction; transformers reverses it where original names are needed.
"""

from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Chunk, ConversionOps, WeightConverter, WeightRenaming

# Keys of transformers' table of mappings. A model is looked up in it by `config.model_type`; these
# are no model types, so that nothing but `load` ever finds them.
PLAIN = "hf_vlm_rl/internvl_chat"
INTERNLM2 = "hf_vlm_rl/internvl_chat/internlm2"


class SplitGroupedQKV(ConversionOps):
    """InternLM2's `wqkv` -> q, k, v.

    Its rows are `num_key_value_heads` groups of (queries of the group, one key, one value), each
    `head_dim` rows high.
    """

    @torch.no_grad()
    def convert(self, input_dict: Any, source_patterns: Any, target_patterns: Any, **kwargs: Any) -> Any:
        """Split (groups * (queries + 2) * head_dim, ...) into three tensors."""
        (fused,) = (value[0] if isinstance(value, list) else value for value in input_dict.values())
        groups, queries, head = _attention_shape(kwargs["config"])
        blocks = fused.view(groups, queries + 2, head, *fused.shape[1:])
        parts = (blocks[:, :queries], blocks[:, queries : queries + 1], blocks[:, queries + 1 :])
        # Copies: a view would keep the fused tensor in memory.
        split = [part.reshape(-1, *fused.shape[1:]).clone() for part in parts]
        return dict(zip(target_patterns, split, strict=True))

    @property
    def reverse_op(self) -> ConversionOps:
        """The inverse."""
        return JoinGroupedQKV()


class JoinGroupedQKV(ConversionOps):
    """q, k, v -> InternLM2's `wqkv`; the inverse of `SplitGroupedQKV`."""

    def convert(self, input_dict: Any, source_patterns: Any, target_patterns: Any, **kwargs: Any) -> Any:
        """Join three tensors into one of shape (groups * (queries + 2) * head_dim, ...)."""
        parts = [input_dict[pattern] for pattern in source_patterns]
        parts = [part[0] if isinstance(part, list) else part for part in parts]
        groups, _, head = _attention_shape(kwargs["config"])
        blocks = [part.reshape(groups, -1, head, *part.shape[1:]) for part in parts]
        joined = torch.cat(blocks, dim=1)
        return {target_patterns[0]: joined.reshape(-1, *parts[0].shape[1:])}

    @property
    def reverse_op(self) -> ConversionOps:
        """The inverse."""
        return SplitGroupedQKV()


def _attention_shape(config: PreTrainedConfig) -> tuple[int, int, int]:
    text = config.get_text_config()
    groups = text.num_key_value_heads
    return groups, text.num_attention_heads // groups, text.hidden_size // text.num_attention_heads


def _rename(*pairs: tuple[str, str]) -> list[WeightRenaming]:
    return [WeightRenaming(source, target) for source, target in pairs]


def _common() -> list[WeightRenaming | WeightConverter]:
    return [
        *_rename(
            (r"^vision_model\.", "model.vision_tower."),
            (r"\.embeddings\.class_embedding", ".embeddings.cls_token"),
            (r"\.embeddings\.position_embedding", ".embeddings.position_embeddings"),
            (r"\.embeddings\.patch_embedding", ".embeddings.patch_embeddings.projection"),
            (r"\.encoder\.layers\.", ".encoder.layer."),
            # `\.attn`, so that `self_attn` of a language model stays as it is.
            (r"\.attn\.proj", ".attention.projection_layer"),
            (r"\.attn\.q_norm", ".attention.q_norm"),
            (r"\.attn\.k_norm", ".attention.k_norm"),
            (r"\.norm1", ".layernorm_before"),
            (r"\.norm2", ".layernorm_after"),
            (r"\.ls1", ".lambda_1"),
            (r"\.ls2", ".lambda_2"),
            (r"^mlp1\.0\.", "model.multi_modal_projector.layer_norm."),
            (r"^mlp1\.1\.", "model.multi_modal_projector.linear_1."),
            (r"^mlp1\.3\.", "model.multi_modal_projector.linear_2."),
            (r"^language_model\.model\.", "model.language_model."),
        ),
        WeightConverter(
            r"\.attn\.qkv", [".attention.q_proj", ".attention.k_proj", ".attention.v_proj"], [Chunk(dim=0)]
        ),
    ]


def _plain() -> list[WeightRenaming | WeightConverter]:
    return [*_common(), *_rename((r"^language_model\.lm_head", "lm_head"))]


def _internlm2() -> list[WeightRenaming | WeightConverter]:
    return [
        *_common(),
        *_rename(
            (r"^language_model\.output", "lm_head"),
            (r"\.tok_embeddings", ".embed_tokens"),
            (r"\.attention\.wo", ".self_attn.o_proj"),
            (r"\.attention_norm", ".input_layernorm"),
            (r"\.ffn_norm", ".post_attention_layernorm"),
            (r"\.feed_forward\.w1", ".mlp.gate_proj"),
            (r"\.feed_forward\.w2", ".mlp.down_proj"),
            (r"\.feed_forward\.w3", ".mlp.up_proj"),
        ),
        WeightConverter(
            r"\.attention\.wqkv",
            [".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"],
            [SplitGroupedQKV()],
        ),
    ]


def mapping_for(backbone: str) -> str:
    """Register the mappings with transformers, and return the key of the one for a checkpoint."""
    register_checkpoint_conversion_mapping(PLAIN, _plain(), overwrite=True)
    register_checkpoint_conversion_mapping(INTERNLM2, _internlm2(), overwrite=True)
    return INTERNLM2 if backbone == "InternLM2ForCausalLM" else PLAIN
