"""Lays the paths of a trie apart as rows, and what the forward makes of them together again.

AsyncGRPOTrainer folds the samples of a micro-batch into a trie, where a token that several of them begin with
is one node, and passes its N nodes as one row, depth first. But images are read on whole paths, and positions
are no depths where they have three dimensions. So each path to a leaf becomes a row, and `sharing` computes
once what rows have in common. The N nodes stand for S rows of at most L tokens; H hidden size.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

from .arguments import TRIE, says_something


@dataclass(frozen=True)
class Placement:
    """Where a trainer's tokens (B, T), the nodes of a trie or rows without padding, stand in a padded batch.

    `paths` (S, L) has the token at each place, counted over the flattened B rows, -1 behind a row's last one;
    `places` (B * T,), a place of each token among the S * L; `shape`, B and T.
    """

    paths: torch.Tensor
    places: torch.Tensor
    shape: torch.Size

    def apart(self, tokens: torch.Tensor, filler: int) -> torch.Tensor:
        """Values (B, T) of the trainer's tokens as those (S, L) of the batch, `filler` behind each row."""
        return tokens.flatten()[self.paths.clamp(min=0)].masked_fill(self.paths < 0, filler)

    def together(self, states: torch.Tensor) -> torch.Tensor:
        """States (S, L, H) of the batch as those (B, T, H) of the trainer's tokens."""
        return states.flatten(0, 1).index_select(0, self.places).unflatten(0, self.shape)


def trie_of(kwargs: Mapping[str, Any]) -> Placement | None:
    """Where the nodes of the trie that a forward's one row holds stand; None if the caller has folded none.

    It is in `input_ids` and `position_ids` (1, N), the depth of each node; `tree_kv_index` (K,), from a root
    to the end of each segment (nodes up to a fork or a leaf); and `tree_cu_seqlens_k`, where these paths
    begin and end in it.

    Raises:
        ValueError: If they are none of a trie.
    """
    arguments = sorted(name for name in TRIE if says_something(kwargs.get(name)))
    if not arguments:
        return None
    names = ("input_ids", "position_ids", "tree_kv_index", "tree_cu_seqlens_k")
    values = [() if kwargs.get(name) is None else kwargs[name] for name in names]
    ids, depths, index, bounds = (torch.as_tensor(value).cpu().long() for value in values)
    if ids.shape != depths.shape or len(ids) != 1 or bounds.numel() < 2 or bounds[-1] != len(index):
        raise ValueError(
            f"Got {arguments} for ids of shape {tuple(ids.shape)}. Expected {', '.join(names)}, one row."
        )
    nodes = ids.numel()
    lengths = bounds.diff()
    # A path that another one continues is in that one, too, and its last node with it.
    leaves = index.bincount(minlength=nodes)[index[bounds[1:] - 1]] == 1
    index, lengths = index[leaves.repeat_interleave(lengths)], lengths[leaves]
    inside = torch.arange(max(lengths.tolist(), default=0)) < lengths[:, None]
    paths = torch.full(inside.shape, -1)
    paths[inside] = index
    slots = inside.flatten().nonzero().flatten()
    places = torch.full((nodes,), inside.numel()).scatter_reduce(0, index, slots, "amin")
    whole = bool((places < inside.numel()).all())
    if not whole or not torch.equal(depths[0, index], slots % inside.shape[1]):
        raise ValueError(
            f"Got {arguments} of which some node is on no path, or on one where position_ids is not its "
            "depth. Expected the tries of AsyncGRPOTrainer (TRL 1.16)."
        )
    device = kwargs["input_ids"].device
    return Placement(paths.to(device), places.to(device), ids.shape)


def reads_tries(attention: Any) -> bool:
    """Whether an attention implementation is one for tries alone, which policies do not need."""
    function = AttentionInterface().get(attention) if isinstance(attention, str) else None
    return function is not None and bool(TRIE & set(inspect.signature(function).parameters))


def require_no_trie(kwargs: Mapping[str, Any]) -> None:
    """Refuse a trie in a forward with logits, which belong to ids on whole paths.

    Raises:
        TypeError: If there is one.
    """
    if arguments := sorted(name for name in TRIE if says_something(kwargs.get(name))):
        raise TypeError(
            f"Got {arguments} for a forward with logits. Expected a forward of the backbone "
            "(policy.base_model), as TRL's fused head makes it; or rows that are not folded."
        )
