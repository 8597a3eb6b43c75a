"""Clauses 14 and 18: whatever arguments are drawn, the policy's numbers are the stock model's."""

import copy
import functools

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.images import photo

from .cases import ALL, native, tickets, user
from .every import NEWER
from .rounding import rtol_of_rows

QUESTIONS = (
    "What is this? Look closely at it.",
    "Compare them, please, and tell me all you see.",
    "Say hello.",
)
ENDINGS = ("", " Now.", " And be brief about it.", " In one word")
PICTURES = {
    "cat": photo("cat", (140, 140)),
    "cup": photo("coffee", (224, 84)),
    "sky": photo("rocket", (84, 224)),
}
IMAGES = ((), ("cat",), ("cup",), ("cup", "cat"), ("sky",))
POSITIONS = (None, "counted", "trainer", "columns", "restarting")
MASKS = ("padding", "none", "holes")

rows = st.lists(
    st.tuples(st.sampled_from(IMAGES), st.sampled_from(QUESTIONS), st.sampled_from(ENDINGS)),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="session")
def sides(_loaded_policy, _loaded_bare, checkpoint):
    """`sides(family)`: stock model and processor, and a policy that shares wherever it is exact."""
    from transformers import AutoProcessor

    @functools.cache
    def make(family):
        policy = copy.deepcopy(_loaded_policy(family)).eval()
        policy.base_model.sharing.mode = True
        processor = AutoProcessor.from_pretrained(checkpoint(family), padding_side="left")
        return _loaded_bare(family).eval(), processor, policy

    return make


def positions_of(kind, mask):
    """(B, T) explicit positions of the kind that a caller might pass."""
    counted = mask.cumsum(dim=1) - 1
    columns = torch.arange(mask.shape[1]).expand_as(mask)
    return {
        "counted": counted.clamp(min=0),
        "trainer": mask.cumsum(dim=1) - mask,  # as PPO computes them
        "columns": columns,
        "restarting": columns % 7,
    }[kind]


@pytest.mark.parametrize("family", [*ALL, *NEWER])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@example(  # Molmo 2 reads a mask from the positions of a row without padding, unless it gets token types
    rows=[((), QUESTIONS[0], "")],
    repeats=1,
    side="left",
    mask="padding",
    positions="restarting",
    labelled=False,
    keep=0,
    seed=0,
)
@given(
    rows=rows,
    repeats=st.integers(1, 3),
    side=st.sampled_from(("left", "right")),
    mask=st.sampled_from(MASKS),
    positions=st.sampled_from(POSITIONS),
    labelled=st.booleans(),
    keep=st.sampled_from((0, 0, 4)),
    seed=st.integers(0, 99),
)
def test_the_numbers_are_those_of_the_stock_model(
    family, sides, rows, repeats, side, mask, positions, labelled, keep, seed
):
    bare, processor, policy = sides(family)
    if family == "paligemma":  # its native processor refuses rows without an image
        rows = [(images or ("cat",), question, ending) for images, question, ending in rows]
    conversations = [
        user(question + ending, *(PICTURES[name] for name in images))
        for images, question, ending in rows
        for _ in range(repeats)
    ]
    processor.tokenizer.padding_side = side
    expected_batch = native(processor, conversations, side).to(torch.float32)  # Llama 4's makes bfloat16
    batch = tickets(policy.processing_class, conversations, side)
    assert torch.equal(batch["input_ids"], expected_batch["input_ids"])
    seen = batch["attention_mask"].clone()
    if mask == "holes":
        generator = torch.Generator().manual_seed(seed)
        # Stock counts images by marks beside them, so a mark is not hidden.
        special = torch.tensor([policy.config.image_token_id, *processor.tokenizer.all_special_ids])
        text = ~torch.isin(batch["input_ids"], special)
        seen &= ~((torch.rand(seen.shape, generator=generator) < 0.1) & text)
    options = {"use_cache": False}
    if positions is not None:
        options["position_ids"] = positions_of(positions, seen)
    if labelled:
        options["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    if keep and not labelled:
        options["logits_to_keep"] = keep
    for side_batch in (batch, expected_batch):
        side_batch["attention_mask"] = None if mask == "none" else seen
    with torch.no_grad():
        expected = bare(**expected_batch, **options)
        found = policy(**batch, **options)
    real = torch.ones_like(seen).bool() if mask == "none" else seen.bool()
    real = real[:, -keep:] if keep and not labelled else real
    largest = expected.logits.abs().max()
    assert (found.logits[real] - expected.logits[real]).abs().max() <= rtol_of_rows(policy) * largest
    if labelled:
        torch.testing.assert_close(found.loss, expected.loss, atol=1e-5, rtol=1e-5)
