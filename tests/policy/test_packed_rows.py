"""Rows packed into one, without padding, are computed as rows of their own."""

import pytest
import torch

from hf_vlm_rl import TicketError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.processing.prompts import CAT, COFFEE

CAUSAL = tuple(family for family in FAMILIES if family != "paligemma")


def row(policy, text: str, *images) -> list[int]:
    prompt = {"prompt": [{"role": "user", "content": text}], "images": list(images)}
    return policy.tokenizer.apply_chat_template(policy.tokenizer.with_tickets(prompt)["prompt"])["input_ids"]


def pack(rows: list[list[int]], padding: int = 0) -> dict[str, torch.Tensor]:
    """One row of all, as TRL packs them; positions of padding are 0."""
    ids = [token for ids in rows for token in ids] + [0] * padding
    positions = [place for ids in rows for place in range(len(ids))] + [0] * padding
    return {"input_ids": torch.tensor([ids]), "position_ids": torch.tensor([positions])}


@pytest.mark.parametrize("family", CAUSAL)
def test_values_and_gradients_are_those_of_the_rows(family, policy_for):
    policy = policy_for(family)
    last = row(policy, "Hello.") if not policy.family.needs_image else row(policy, "Hello.", CAT)
    rows = [row(policy, "What is it?", CAT), row(policy, "Compare them.", COFFEE, CAT), last]
    weight = policy.get_output_embeddings().weight

    def gradient(losses) -> torch.Tensor:
        policy.zero_grad()
        sum(losses).backward()
        return weight.grad.clone()

    together = policy(**pack(rows, padding=3)).logits
    assert together.shape[:2] == (1, sum(map(len, rows)) + 3)
    parts = together[0, : sum(map(len, rows))].split([len(ids) for ids in rows])
    packed = gradient([part.log_softmax(-1)[:, 7].sum() for part in parts])
    alone = [policy(input_ids=torch.tensor([ids])).logits[0] for ids in rows]
    for part, own in zip(parts, alone, strict=True):
        assert torch.allclose(part, own, atol=2e-5)
    each = gradient([own.log_softmax(-1)[:, 7].sum() for own in alone])
    assert torch.allclose(packed, each, atol=1e-3 * float(each.abs().max()))


def test_a_single_row_with_positions_and_no_mask(policy_for):
    policy = policy_for("qwen2_5_vl")
    ids = row(policy, "What is it?", CAT)
    with torch.no_grad():
        one, other = policy(**pack([ids])).logits, policy(input_ids=torch.tensor([ids])).logits
    assert torch.allclose(one, other, atol=1e-5)


def test_a_cut_image_is_refused(policy_for):
    policy = policy_for("internvl")
    ids = row(policy, "What is it?", CAT)
    with pytest.raises(TicketError, match="truncated"):
        policy(**pack([ids[: len(ids) // 2]]))
    with pytest.raises(TicketError, match="a length limit or packing may have cut it"):
        policy(**pack([ids[len(ids) // 2 :]]))


@pytest.mark.parametrize(
    "asked", [{"output_hidden_states": True}, {"token_type_ids": torch.zeros(1, 3)}, {"return_dict": False}]
)
def test_what_is_not_known_of_packed_rows_is_refused(asked, policy_for):
    policy = policy_for("internvl")
    with pytest.raises(TicketError, match="packed without padding and have images"):
        policy.base_model(**pack([row(policy, "What is it?", CAT)]), **asked)
