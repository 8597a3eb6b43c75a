"""An argument that nobody in a model reads is refused, if it says something."""

import pytest
import torch

from tests.conformance.cases import ALL, no_image, one_image, tickets


@pytest.mark.parametrize("family", ALL)
def test_an_argument_that_nobody_reads_is_refused(family, policy_for):
    policy = policy_for(family)
    batch = dict(tickets(policy.processing_class, [one_image()]))
    for model in (policy, policy.base_model):
        with torch.no_grad():
            with pytest.raises(TypeError, match=r"got \['tree_mask'\], which nobody in it reads"):
                model(**batch, tree_mask=torch.arange(3))
            expected = model(**batch)[0]
            assert torch.equal(model(**batch, tree_kv_index=None, tree_max_seqlen_q=False)[0], expected)


def test_rows_of_text_are_no_exception(policy_for):
    policy = policy_for("internvl")
    ids = tickets(policy.processing_class, [no_image()])["input_ids"]
    with pytest.raises(TypeError, match="tree_cu_seqlens_q"):
        policy(input_ids=ids, tree_cu_seqlens_q=torch.tensor([0, 3]))


def test_what_models_of_transformers_take_is_passed_on(policy_for):
    policy = policy_for("internvl").train()
    batch = dict(tickets(policy.processing_class, [one_image()] * 2))
    labels = batch["input_ids"]
    losses = [
        policy(**batch, labels=labels, **given).loss
        for given in ({}, {"num_items_in_batch": 2 * labels.numel()})
    ]
    assert losses[1] < losses[0]
