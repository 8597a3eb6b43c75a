"""The fused head of TRL 1.16 on a policy: values and gradients of stock's, from labelled positions alone."""

import copy
import pickle
from types import MethodType

import pytest
import torch
from trl.trainer import utils

from tests.conformance.cases import no_image, one_image, two_images
from tests.conformance.test_sharing import group

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(
        not hasattr(utils, "add_fused_lm_head"), reason="TRL before 1.16 assigns no fused head to a model"
    ),
]

OUTPUTS = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
# The twins multiply other numbers of rows by the head, which sums in another order.
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


@pytest.fixture
def twins(policy_for):
    """`twins(family)`: two policies of one kind; the second has TRL's forward as TRL wrote it."""

    def make(family, **options):
        ours = policy_for(family)
        slow = copy.deepcopy(ours)
        for policy in (ours, slow):
            utils.add_fused_lm_head(policy, outputs=OUTPUTS, **options)
        vars(slow)["forward"] = MethodType(slow.forward.__func__.__wrapped__, slow)
        return ours, slow

    return make


def labelled(policy, *rows):
    """A batch of completions behind these prompts, with labels for the completions alone."""
    batch = group(policy, [*rows])
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    labels[:, :-7] = -100
    return batch | {"labels": labels, "fused_lm_head": True}


def states_of(policy):
    """Shapes of the hidden states that the policy's backbone hands over from now on."""
    shapes = []
    policy.base_model.register_forward_hook(
        lambda module, arguments, output: shapes.append(tuple(output.last_hidden_state.shape))
    )
    return shapes


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "gemma3", "paligemma"])
@pytest.mark.parametrize("sharing", [True, False])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "cast_lm_head_to_fp32": True}], ids=str)
def test_values_and_gradients_are_those_of_trl(family, sharing, options, twins):
    ours, slow = twins(family, **options)
    rows = [one_image(), two_images()] if family == "paligemma" else [one_image(), no_image()]
    found, shapes = [], [states_of(policy) for policy in (ours, slow)]
    for policy in (ours, slow):
        policy.base_model.sharing.mode = sharing
        batch = labelled(policy, *rows)
        output = policy(**batch)
        weights = torch.arange(output.log_probs.numel()).view(output.log_probs.shape).cos()
        (output.loss + (output.log_probs * weights).sum() + (output.entropy * weights.sin()).sum()).backward()
        found.append((output, [parameter.grad for parameter in policy.parameters()]))
    count = int((batch["labels"][:, 1:] != -100).sum())
    width = ours.config.get_text_config().hidden_size
    assert shapes == [[(1, count, width)], [(*batch["input_ids"].shape, width)]]
    (output, gradients), (expected, stock_gradients) = found
    assert output.keys() == expected.keys()
    for name in ("loss", *OUTPUTS):
        torch.testing.assert_close(output[name], expected[name], **CLOSE)
    assert torch.equal(output.label_mask, expected.label_mask)
    for own, stock in zip(gradients, stock_gradients, strict=True):
        assert (own is None) == (stock is None)
        if own is not None:
            assert (own - stock).abs().max() <= 5e-5 * max(stock.abs().max(), 1)


def test_the_loss_of_experts_is_added_as_by_trl(twins):
    ours, slow = twins("internvl")
    for policy in (ours, slow):
        policy.config.get_text_config().output_router_logits = False
    batch = labelled(ours, one_image(), no_image())
    divided = batch | {"num_items_in_batch": torch.tensor(5)}
    torch.testing.assert_close(ours(**divided).loss, slow(**divided).loss, **CLOSE)
    assert ours(**divided).loss != ours(**batch).loss


def test_without_a_label_the_loss_is_0_and_so_are_gradients(twins):
    ours, slow = twins("internvl")
    for policy in (ours, slow):
        batch = labelled(policy, one_image(), no_image())
        output = policy(**batch | {"labels": torch.full_like(batch["labels"], -100)})
        assert output.loss == 0
        assert not output.log_probs.any()
        output.loss.backward()
    for own, stock in zip(ours.parameters(), slow.parameters(), strict=True):
        assert (own.grad is None) == (stock.grad is None)
        assert own.grad is None or not own.grad.any()


def test_what_is_no_call_of_the_fused_head_is_left_alone(twins, policy_for):
    ours, slow = twins("internvl")
    batch = labelled(ours, one_image(), no_image())
    shifted = {name: batch[name] for name in batch if name != "labels"}
    shifted["shift_labels"] = torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
    plain = {name: batch[name] for name in batch if name != "fused_lm_head"}
    with torch.no_grad():
        assert torch.equal(ours(**shifted).log_probs, slow(**shifted).log_probs)
        assert torch.equal(ours(**plain).logits, slow(**plain).logits)
        assert torch.equal(ours(**plain).logits, policy_for("internvl")(**plain).logits)


def test_a_forward_on_top_of_it_scores_the_same(twins):
    """As accelerate's autocast is: it wraps the function of the bound method that it finds."""
    ours, slow = twins("internvl")
    for policy in (ours, slow):
        autocast = torch.autocast("cpu", dtype=torch.bfloat16)
        policy.forward = MethodType(autocast(policy.forward.__func__), policy)
    shapes = states_of(ours)
    with torch.no_grad():
        batch = labelled(ours, one_image(), no_image())
        found, expected = ours(**batch), slow(**batch)
    assert shapes == [(1, int(found.label_mask.sum()), ours.config.get_text_config().hidden_size)]
    torch.testing.assert_close(found.log_probs, expected.log_probs, rtol=0.02, atol=0.02)


def test_a_policy_with_it_can_be_copied(twins):
    ours, _ = twins("internvl")
    batch = labelled(ours, one_image(), no_image())
    twin = copy.deepcopy(ours)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(0.5)
        assert not torch.equal(twin(**batch).log_probs, ours(**batch).log_probs)
    with pytest.raises((AttributeError, pickle.PicklingError)):  # as stock's: TRL's forward is a closure
        pickle.dumps(ours)
