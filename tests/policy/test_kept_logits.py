"""`logits_to_keep`: the last tokens' logits are those of a forward that keeps all."""

import pytest
import torch

from hf_vlm_rl.policy.kept_logits import takes_places
from tests.conformance.cases import families, no_image, one_image, tickets, two_images

ROWS = (one_image, two_images)


def batch_of(policy, *rows) -> dict:
    return dict(tickets(policy.processing_class, [row() for row in rows]))


@pytest.mark.parametrize("sharing", [True, False])
@pytest.mark.parametrize("family", families("rows without images"))
def test_any_number_gives_the_last_tokens_and_their_gradients(family, sharing, policy_for):
    policy = policy_for(family)
    policy.base_model.sharing.mode = sharing
    # Most adapters leave the head as it is, and then torch multiplies it in another way.
    policy.get_output_embeddings().requires_grad_(False)
    batch = batch_of(policy, *ROWS, *ROWS)
    weight = policy.base_model.decoder.get_input_embeddings().weight.requires_grad_(True)
    columns = batch["input_ids"].shape[1]
    every = policy(**batch, use_cache=False).logits
    allowed = 1e-5 * float(every.detach().abs().max())
    for kept in (1, 2, 5, columns - 1, columns, columns + 3):
        found = policy(**batch, use_cache=False, logits_to_keep=kept).logits
        expected = every[:, -kept:]
        assert found.shape == expected.shape
        real = batch["attention_mask"][:, -kept:].bool()
        torch.testing.assert_close(found[real], expected[real], atol=allowed, rtol=0)
    report = policy.sharing_report()
    assert not report["not_shared"]
    assert (report["tokens"] > report["tokens_computed"]) == sharing
    factor = torch.randn(expected[:, -5:].shape, generator=torch.Generator().manual_seed(0))
    kept = policy(**batch, use_cache=False, logits_to_keep=5).logits
    gradients = [
        torch.autograd.grad((logits * factor).sum(), weight, retain_graph=True)[0]
        for logits in (every[:, -5:], kept)
    ]
    largest = gradients[0].abs().max()
    assert largest > 0
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-5 * largest


def test_the_head_is_given_a_matrix(policy_for):
    policy = policy_for("internvl")
    given = []
    head = policy.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with torch.no_grad():
        policy(**batch_of(policy, *ROWS), use_cache=False, logits_to_keep=4)
        hook.remove()
    assert [hidden.shape[:2] for hidden in given] == [(2, 4)]
    assert given[0].is_contiguous()


@pytest.mark.parametrize("family", families("rows without images"))
def test_rows_of_text_get_the_stock_models_very_numbers(family, policy_for, bare_for):
    policy, bare = policy_for(family), bare_for(family)
    policy.base_model.sharing.mode = False
    batch = batch_of(policy, no_image, no_image)
    plain = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        found = policy(**plain, use_cache=False, logits_to_keep=4).logits
        assert torch.equal(found, bare(**plain, use_cache=False, logits_to_keep=4).logits)


def test_places_are_taken_as_they_are(policy_for):
    policy = policy_for("internvl")
    batch = batch_of(policy, *ROWS)
    with torch.no_grad():
        every = policy(**batch, use_cache=False).logits
        places = torch.tensor([3, 1])
        found = policy(**batch, use_cache=False, logits_to_keep=places).logits
    torch.testing.assert_close(found, every[:, places], atol=1e-5, rtol=0)
    assert found.shape[1] == 2


@pytest.mark.parametrize("family", families("rows without images"))
@pytest.mark.parametrize("kept", [3, [3, 1], [-1, 0, 40, 40], "every second"])
def test_tokens_of_images_are_certain_and_others_as_they_are(family, kept, policy_for):
    """With tickets inside the ids, whichever tokens are kept."""
    policy = policy_for(family)
    prompt = policy.tokenizer.with_tickets({"prompt": two_images()})["prompt"]
    ids = torch.tensor([policy.tokenizer.apply_chat_template(prompt)["input_ids"]])
    with torch.no_grad():
        every = policy(input_ids=ids, use_cache=False).logits
        if kept == "every second":
            kept = torch.arange(ids.shape[1]) % 2 == 0
        places = torch.tensor(kept) if isinstance(kept, list) else kept
        found = policy(input_ids=ids, use_cache=False, logits_to_keep=places).logits
    expected = every[:, -places:] if isinstance(places, int) else every[:, places]
    torch.testing.assert_close(found, expected, atol=1e-5 * float(every.abs().max()), rtol=0)


def test_only_models_that_say_so_are_given_places():
    def of_transformers(self, logits_to_keep: int | torch.Tensor = 0): ...

    def of_somebody(self, logits_to_keep: int = 0): ...

    def silent(self, logits_to_keep=0): ...

    def without(self, **kwargs): ...

    assert [takes_places(each) for each in (of_transformers, of_somebody, silent, without)] == [
        True,
        False,
        False,
        False,
    ]
