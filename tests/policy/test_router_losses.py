"""Router losses: asked for by an argument or by the config, they are those of the stock model."""

import pytest
import torch
from torch.nn.functional import pad

from tests.conformance.cases import native, one_image, tickets, two_images

# Kimi's decoder records router logits; the model around it gives none.
WITH_LOSS = ["qwen3_vl_moe", "qwen3_5_moe", "glm4v_moe", "ernie4_5_vl_moe"]
ALL = [*WITH_LOSS, "kimi_k25"]
# Rows of one prompt, packed or not, sum in other orders.
ATOL = 2e-5


def sft_batch(batch) -> dict:
    """Two prompts twice, each with six tokens of its own, which are the labels."""
    answers = torch.randint(100, 300, (4, 6), generator=torch.Generator().manual_seed(0))
    ids = torch.cat([batch["input_ids"], answers], dim=1)
    longer = {name: pad(batch[name], (0, 6)) for name in batch if name.endswith("token_type_ids")}
    longer |= {"input_ids": ids, "attention_mask": pad(batch["attention_mask"], (0, 6), value=1)}
    labels = ids.clone()
    labels[:, :-6] = -100
    return dict(batch) | longer | {"labels": labels, "use_cache": False}


PROMPTS = [one_image, one_image, two_images, two_images]


def both(model_type, policy_for, bare_for, native_processor_for):
    policy, bare = policy_for(model_type), bare_for(model_type)
    policy.base_model.sharing.mode = True
    rows = [make() for make in PROMPTS]
    ours = sft_batch(tickets(policy.processing_class, rows))
    return policy, ours, bare, sft_batch(native(native_processor_for(model_type), rows))


def gradients(model, loss) -> dict[str, torch.Tensor]:
    loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("asked", ["not", "by argument", "by config"])
@pytest.mark.parametrize("model_type", ALL)
def test_losses_router_logits_and_gradients_are_those_of_stock(
    model_type, asked, policy_for, bare_for, native_processor_for
):
    policy, ours, bare, theirs = both(model_type, policy_for, bare_for, native_processor_for)
    argument = {"output_router_logits": True} if asked == "by argument" else {}
    found = []
    for model, batch in ((policy, ours), (bare, theirs)):
        text = model.config.get_text_config()
        text.output_router_logits = asked == "by config"
        text.router_aux_loss_coef = 0.5  # large enough to move every gradient of a router
        output = model.train()(**batch, **argument)
        found.append((output, gradients(model, output.loss)))
    (output, grads), (expected, stock) = found
    assert output.keys() == expected.keys()
    assert ("aux_loss" in expected) == (asked != "not" and model_type in WITH_LOSS)
    real = theirs["attention_mask"].bool()
    torch.testing.assert_close(output.logits[real], expected.logits[real], atol=ATOL, rtol=0)
    torch.testing.assert_close(output.loss, expected.loss, atol=ATOL, rtol=0)
    if "aux_loss" in expected:
        torch.testing.assert_close(output.aux_loss, expected.aux_loss, atol=ATOL, rtol=0)
        torch.testing.assert_close(output.router_logits, expected.router_logits, atol=ATOL, rtol=0)
    assert grads.keys() == stock.keys()
    for name, gradient in stock.items():
        torch.testing.assert_close(grads[name], gradient, atol=ATOL, rtol=1e-4, msg=name)

    report = policy.sharing_report()
    assert (report["tokens"] > 0) == (asked == "not")
    if asked != "not":
        assert ["output_router_logits" in reason for reason in report["not_shared"]] == [True]


@pytest.mark.parametrize("wanted", ["output_router_logits", "output_hidden_states"])
def test_a_backbone_whose_config_asks_for_its_layers_gives_those_of_every_row(
    wanted, policy_for, bare_for, native_processor_for
):
    """TRL calls the backbone itself, with no argument that asks."""
    policy, ours, bare, theirs = both("qwen3_vl_moe", policy_for, bare_for, native_processor_for)
    found = []
    for model, batch in ((policy, ours), (bare, theirs)):
        batch.pop("labels")
        setattr(model.config.get_text_config(), wanted, True)
        with torch.no_grad():
            found.append(model.base_model(**batch)[wanted.removeprefix("output_")])
    for layer, same in zip(*found, strict=True):
        torch.testing.assert_close(layer, same, atol=ATOL, rtol=0)
    assert policy.sharing_report()["not_shared"] == {f"the model's config has {wanted}": 1}
