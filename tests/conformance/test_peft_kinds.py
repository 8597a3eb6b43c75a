"""What adds to a prompt or to its embeddings: each row keeps its own, as in stock."""

import pytest
import torch
from peft import PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers.integrations.neftune import activate_neftune

from tests.conformance.test_sharing import group, with_sharing

from .cases import native, no_image, one_image, tickets


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_noise_on_embeddings_is_each_rows_own(family, policy_for, bare_for):
    policy, stock = with_sharing(policy_for(family), True).train(), bare_for(family).train()
    batch = group(policy, [no_image()])
    logits = []
    for model in (policy, stock):
        activate_neftune(model, 5.0)
        torch.manual_seed(0)
        logits.append(model(**batch, use_cache=False).logits)
    mask = batch["attention_mask"].bool()
    largest = logits[1].abs().max().item()
    torch.testing.assert_close(logits[0][mask], logits[1][mask], rtol=0, atol=1e-5 * largest)
    (reason,) = policy.sharing_report()["not_shared"]
    assert reason == "a hook of transformers.integrations.neftune is on the decoder"


@pytest.mark.parametrize("config", [PrefixTuningConfig, PromptTuningConfig])
def test_learned_tokens_before_a_prompt_are_read_by_generate(
    config, policy_for, bare_for, native_processor_for
):
    policy, stock = with_sharing(policy_for("internvl"), True), bare_for("internvl")
    rows = [one_image()] * 2
    ours, theirs = tickets(policy.processing_class, rows), native(native_processor_for("internvl"), rows)
    options = {"max_new_tokens": 6, "do_sample": False, "suppress_tokens": list(policy.placeholder_ids)}
    answers = []
    for model, batch in ((policy, ours), (stock, theirs)):
        torch.manual_seed(0)
        learned = get_peft_model(model, config(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
        with torch.no_grad():
            for weight in learned.parameters():
                if weight.requires_grad:
                    weight.normal_(std=3.0)
        answers.append(learned.generate(**batch, **options))
    assert torch.equal(*answers)
