"""The table of arguments: what is known of each name that a model's forward, or `generate`, may be given.

A fast path takes an argument only if its name has a row here that says so. A release of transformers that
brings a new name is one line here; until it has one, rows of a batch that comes with it do not share.
Shapes: B rows, T tokens.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .report import Refused


@dataclass(frozen=True)
class Argument:
    """What is known of one name.

    Attributes:
        rows: The dimension of the batch's rows; the next dimension is that of tokens. None: the value
            does not belong to single rows.
        backbone: Rows may share their prompts in a forward of the backbone with this argument.
        decoder: What the decoder gets of it for packed tokens: "tokens": the packed tokens' part of
            (B, T, ...); "positions": the same of (B, T) or (3 or 4, B, T); "images": the same of a mask of
            image tokens, and of `features` those of image tokens in the part; "whole": the value as it is.
        features: For a mask of image tokens: the argument with what the decoder adds at these tokens.
        attention: Attention modules may get this argument: it does not change what they compute.
        step: Finished rows may leave a decoding step with this argument.
        generate: A `generate` with this argument may run a repeated prompt once.
        trie: It says how a trainer has folded rows into a trie.
    """

    rows: int | None = None
    backbone: bool = False
    decoder: Literal["tokens", "positions", "images", "whole"] | None = None
    features: str | None = None
    attention: bool = False
    step: bool = False
    generate: bool = False
    trie: bool = False


ARGUMENTS: Mapping[str, Argument] = {
    # Which tokens there are, where they stand and what they see.
    "attention_mask": Argument(rows=0, backbone=True, step=True, generate=True),
    "cache": Argument(step=True),  # "past_key_values" before transformers 5.24
    "cache_position": Argument(attention=True),
    "input_ids": Argument(rows=0, backbone=True, step=True, generate=True),
    "inputs_embeds": Argument(rows=0, decoder="tokens"),
    "is_causal": Argument(attention=True),
    "past_key_values": Argument(step=True),
    "position_embeddings": Argument(attention=True),
    "position_ids": Argument(rows=-2, backbone=True, decoder="positions", attention=True, step=True),
    "sliding_window": Argument(attention=True),
    "use_cache": Argument(attention=True, step=True),
    # The kind of each token.
    "mm_token_type_ids": Argument(rows=0, backbone=True, attention=True, step=True, generate=True),
    "moe_mm_token_type_ids": Argument(rows=0, backbone=True, decoder="tokens"),
    "token_type_ids": Argument(rows=0, backbone=True, attention=True, step=True, generate=True),
    # Images, and features that some decoders add at image tokens in several layers.
    "deepstack_features": Argument(),
    "deepstack_visual_embeds": Argument(),
    "image_grid_thw": Argument(backbone=True),
    "mm_encoder_outputs": Argument(backbone=True),
    "per_layer_inputs": Argument(rows=0, decoder="tokens"),
    "vision_mask": Argument(rows=0, decoder="images", features="deepstack_features"),
    "visual_pos_masks": Argument(rows=0, decoder="images", features="deepstack_visual_embeds"),
    # Requests for outputs, and what only the head or the loss reads.
    "logits_to_keep": Argument(backbone=True, decoder="whole", attention=True, step=True),
    "num_items_in_batch": Argument(attention=True),
    "output_attentions": Argument(attention=True),
    "output_hidden_states": Argument(attention=True),
    "output_router_logits": Argument(attention=True),
    "return_dict": Argument(backbone=True, step=True),
    # How the tokens of one row stand for rows that are folded into a trie.
    "tree_cu_seqlens_k": Argument(trie=True),
    "tree_cu_seqlens_q": Argument(trie=True),
    "tree_kv_index": Argument(trie=True),
    "tree_max_seqlen_k": Argument(trie=True),
    "tree_max_seqlen_q": Argument(trie=True),
    # Arguments of `generate` alone; transformers hands some of them on to every module.
    "generation_config": Argument(generate=True),
    "logits_processor": Argument(generate=True),
    "stopping_criteria": Argument(generate=True),
    "streamer": Argument(generate=True),
    "synced_gpus": Argument(generate=True),
    "tokenizer": Argument(attention=True, generate=True),
    "use_model_defaults": Argument(generate=True),
}

BACKBONE = frozenset(name for name, argument in ARGUMENTS.items() if argument.backbone)
ATTENTION = frozenset(name for name, argument in ARGUMENTS.items() if argument.attention)
STEP = frozenset(name for name, argument in ARGUMENTS.items() if argument.step)
GENERATE = frozenset(name for name, argument in ARGUMENTS.items() if argument.generate)
TRIE = frozenset(name for name, argument in ARGUMENTS.items() if argument.trie)

# The names of features that go with a mask of image tokens.
FEATURES = frozenset(argument.features for argument in ARGUMENTS.values() if argument.features)


def says_something(value: Any) -> bool:
    """Whether an argument asks for more than its default: None and False do not."""
    return value is not None and value is not False


def require_known(
    kwargs: Mapping[str, Any], known: Collection[str], whoever: str, lasting: bool = False
) -> None:
    """Refuse arguments whose names are not known; the reason begins with `whoever`, "the caller passes".

    Raises:
        Refused: If an unknown one is neither None nor False.
    """
    for name, value in kwargs.items():
        if name not in known and says_something(value):
            raise Refused(f"{whoever} {name}", lasting)


def require_rows(kwargs: Mapping[str, Any], rows: int) -> None:
    """Refuse a decoding step of B = `rows` rows if rows cannot be left out of its arguments.

    Raises:
        Refused: If one of them is unknown, or has another shape than its row in the table says.
    """
    require_known(kwargs, STEP, "the model's decoding step takes")
    for name, value in kwargs.items():
        if (dimension := _dimension(name)) is None or value is None:
            continue
        for part in value.values() if isinstance(value, Mapping) else (value,):
            table = isinstance(part, torch.Tensor) and part.ndim > 1
            if part is not None and not (table and part.shape[dimension] in (1, rows)):
                raise Refused(f"the model's decoding step takes {name}")


def choose_rows(kwargs: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """The arguments of a decoding step, accepted by `require_rows`, for the rows of these (b,) numbers."""
    return {name: _choose(name, value, rows) for name, value in kwargs.items()}


def _dimension(name: str) -> int | None:
    return ARGUMENTS[name].rows if name in ARGUMENTS else None


def _choose(name: str, value: Any, rows: torch.Tensor) -> Any:
    dimension = _dimension(name)
    if dimension is None or value is None:
        return value
    if isinstance(value, Mapping):
        return {kind: _choose(name, part, rows) for kind, part in value.items()}
    if value.shape[dimension] == 1:
        return value  # the same for all rows
    return value.index_select(dimension, rows.to(value.device))
