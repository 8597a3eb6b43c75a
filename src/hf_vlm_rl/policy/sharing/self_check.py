"""Runs a decoder both ways on a few tokens before it shares for the first time.

The conformance tests compare the two paths for every family; this catches what they cannot know: an
attention kernel, a quantised layer or a release of transformers that reads its arguments otherwise.
"""

import torch
from torch import nn

from ..eval_mode import evaluating
from .hooks import LAYOUT
from .layout import find_layout

PREFIX, SUFFIXES = 6, (3, 5)

# Largest difference, as a share of the largest hidden state. A path that is wrong is off by its size.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
TOLERANCE_HALF = 0.1


def disagreement(decoder: nn.Module) -> str | None:
    """Why a decoder must not share: its packed forward differs from its plain one. None if it does not.

    Args:
        decoder: The text decoder of a policy; its mode and gradients are left as they are.
    """
    ids = _rows().to(decoder.device)
    mask = ids >= 0
    layout = find_layout(ids.cpu(), mask.cpu()).to(decoder.device)
    embeddings = decoder.get_input_embeddings()(ids.clamp(min=0))
    arguments = {"inputs_embeds": embeddings, "attention_mask": mask.long(), "use_cache": False}
    with torch.no_grad(), evaluating(decoder):
        plain = decoder(**arguments).last_hidden_state[mask].float()
        packed = decoder(**arguments, **{LAYOUT: layout}).last_hidden_state[mask].float()
    difference = ((packed - plain).abs().max() / plain.abs().max()).item()
    allowed = TOLERANCE.get(embeddings.dtype, TOLERANCE_HALF)
    if difference <= allowed:
        return None
    return (
        f"on {mask.sum()} test tokens, packed hidden states of {type(decoder).__name__} differ by "
        f"{difference:.1e} of the largest (at most {allowed:.0e} is rounding)"
    )


def _rows() -> torch.Tensor:
    """(2, T) ids of two rows with a common prefix, right-padded with -1."""
    width = PREFIX + max(SUFFIXES)
    ids = torch.full((len(SUFFIXES), width), -1)
    for row, suffix in enumerate(SUFFIXES):
        ids[row, :PREFIX] = torch.arange(1, PREFIX + 1)
        ids[row, PREFIX : PREFIX + suffix] = PREFIX + 1 + row * max(SUFFIXES) + torch.arange(suffix)
    return ids
