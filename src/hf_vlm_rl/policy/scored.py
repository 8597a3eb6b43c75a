"""Log-probs of a completion by the policy's own forward."""

from collections.abc import Sequence
from typing import Any

import torch

from ..processing.tickets.beside_ids import encode_tickets
from .eval_mode import evaluating


@torch.no_grad()
def logprobs_of(
    model: Any,
    ids: Sequence[int],
    carried: Sequence[tuple[int, int | None]],
    completion: Sequence[int],
    temperature: float = 1.0,
) -> list[float]:
    """Log-probs of a completion's C tokens behind a prompt, of logits divided by `temperature`, above 0.

    The prompt's ids are clean, with every image expanded; `carried` has each image's ticket.
    """
    device = next(model.parameters()).device
    inputs = {"input_ids": torch.tensor([[*ids, *completion]], device=device)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if carried:
        inputs |= {name: tensor.to(device) for name, tensor in encode_tickets(list(carried)).items()}
    with evaluating(model):
        logits = model(**inputs, use_cache=False, logits_to_keep=len(completion) + 1).logits[0, :-1]
    chosen = torch.tensor(completion, device=device)[:, None]
    return (logits.float() / temperature).log_softmax(-1).gather(-1, chosen)[:, 0].tolist()
