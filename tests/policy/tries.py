"""Samples folded into a trie, as `trl.experimental.async_grpo` of TRL 1.16 folds them."""

import itertools

import torch


def fold(samples: list[list[int]]) -> tuple[dict[str, torch.Tensor], list[list[int]]]:
    """The arguments of a forward for samples that are folded, and the packed places of each sample's tokens.

    Two samples share a token if they agree up to the one behind it: paths part one token before they differ.
    """
    children: list[dict] = [{}]  # of each node; the first is above all roots
    for ids in samples:
        node = 0
        for key in itertools.pairwise([*ids, None]):
            node = children[node].setdefault(key, len(children))
            if node == len(children):
                children.append({})
    ids, depths, index, ends, cuts, places = [], [], [], [0], [0], {}

    def lay_out(node: int, key: tuple, path: list[int]) -> None:
        while True:
            places[node] = len(ids)
            path = [*path, len(ids)]
            ids.append(key[0])
            depths.append(len(path) - 1)
            if len(children[node]) != 1:
                break
            ((key, node),) = children[node].items()
        index.extend(path)
        ends.append(len(index))
        cuts.append(len(ids))
        for key, child in children[node].items():
            lay_out(child, key, path)

    for key, root in children[0].items():
        lay_out(root, key, [])
    of_samples = []
    for sample in samples:
        node, nodes = 0, []
        for key in itertools.pairwise([*sample, None]):
            node = children[node][key]
            nodes.append(places[node])
        of_samples.append(nodes)
    arguments = {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([depths]),
        "tree_kv_index": torch.tensor(index),
        "tree_cu_seqlens_q": torch.tensor(cuts, dtype=torch.int32),
        "tree_cu_seqlens_k": torch.tensor(ends, dtype=torch.int32),
        "tree_max_seqlen_q": max(b - a for a, b in itertools.pairwise(cuts)),
        "tree_max_seqlen_k": max(b - a for a, b in itertools.pairwise(ends)),
    }
    return arguments, of_samples
