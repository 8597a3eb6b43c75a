"""accelerate keeps the weights of an offloaded model elsewhere; its modules have theirs on "meta"."""

import accelerate
import pytest
import torch

from hf_vlm_rl import AutoVLMPolicy
from tests.conformance.cases import ALL, one_image, tickets


def assert_offloaded_is_the_same(policy):
    batch = dict(tickets(policy.processing_class, [one_image()]))
    with torch.no_grad():
        logits = policy(**batch).logits
        ids = policy.generate(**batch, max_new_tokens=3, do_sample=False)
        accelerate.cpu_offload(policy, execution_device=torch.device("cpu"))
        assert policy.device.type == "meta"
        assert torch.equal(policy(**batch).logits, logits)
        assert torch.equal(policy.generate(**batch, max_new_tokens=3, do_sample=False), ids)


# These compute with weights outside of their modules' forwards, and fail in stock, too (transformers 5.23).
STOCK_FAILS = ("idefics3", "llava_next", "llava_onevision")


@pytest.mark.parametrize("family", [family for family in ALL if family not in STOCK_FAILS])
def test_an_offloaded_policy_is_the_same(family, policy_for):
    assert_offloaded_is_the_same(policy_for(family))


def test_an_offloaded_policy_with_native_inputs_is_the_same(checkpoint):
    source = checkpoint("internvl")
    assert_offloaded_is_the_same(
        AutoVLMPolicy.from_pretrained(source, dtype="float32", native_inputs=True).eval()
    )


def test_rows_of_an_offloaded_decoder_that_was_not_compared_do_not_share(policy_for):
    policy = policy_for("internvl")
    batch = dict(tickets(policy.processing_class, [one_image()] * 3))
    with torch.no_grad():
        policy.base_model.sharing.mode = False
        expected = policy(**batch, use_cache=False).logits
        policy.base_model.sharing.mode = True
        accelerate.cpu_offload(policy, execution_device=torch.device("cpu"))
        assert torch.equal(policy(**batch, use_cache=False).logits, expected)
    report = policy.sharing_report()
    assert report["tokens"] == 0
    assert list(report["not_shared"]) == [
        "the weights are offloaded, and were not compared with stock before"
    ]
