"""What a trainer saves is what the bare model, plain PEFT and the stock Auto classes load."""

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import cup, dpo, grpo, mixture, preferences, woman

pytestmark = pytest.mark.trl

BLOCKS = [
    {"type": "image", "image": woman()},
    {"type": "image", "image": cup()},
    {"type": "text", "text": "Hm?"},
]


def encoded(processing_class):
    return processing_class.apply_chat_template(
        [[{"role": "user", "content": BLOCKS}]],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


@torch.no_grad()
def logits(model, inputs):
    return model.eval()(**inputs).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_loads_on_the_bare_model(family, policy_for, bare_for, native_processor_for, tmp_path):
    policy = policy_for(family)
    trainer = grpo(policy, mixture(family), tmp_path / "run", peft=policy.lora_config(r=4, target="all"))
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    native = encoded(native_processor_for(family))
    untrained = logits(bare_for(family), native)
    loaded = PeftModel.from_pretrained(bare_for(family), tmp_path / "saved")
    expected = logits(loaded, native)
    assert (expected - untrained).abs().max() > 1e-3
    assert torch.allclose(logits(trainer.model, native), expected, atol=1e-5)
    assert torch.allclose(logits(trainer.model, encoded(policy.processing_class)), expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_saved_processing_class_is_the_stock_processor(
    family, policy_for, native_processor_for, tmp_path
):
    policy, native = policy_for(family), native_processor_for(family)
    trainer = dpo(policy, preferences(family), tmp_path / "run", peft=policy.lora_config(r=4))
    trainer.save_model(tmp_path / "saved")
    loaded = AutoProcessor.from_pretrained(tmp_path / "saved")
    assert type(loaded) is type(native)
    given, expected = encoded(loaded), encoded(native)
    assert set(given) == set(expected)
    for key in expected:
        assert torch.equal(torch.as_tensor(given[key]), torch.as_tensor(expected[key])), key


@pytest.mark.parametrize("family", FAMILIES)
def test_all_weights_load_as_the_bare_model_and_as_a_policy(
    family, checkpoint, policy_for, native_processor_for, tmp_path
):
    policy = policy_for(family)
    trainer = grpo(policy, mixture(family), tmp_path / "run", learning_rate=1e-3)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    native = encoded(native_processor_for(family))
    expected = logits(policy, native)
    bare = AutoModelForImageTextToText.from_pretrained(tmp_path / "saved")
    assert torch.allclose(logits(bare, native), expected, atol=1e-5)
    again = AutoVLMPolicy.from_pretrained(tmp_path / "saved")
    assert torch.allclose(logits(again, encoded(again.processing_class)), expected, atol=1e-5)
    # Same keys and config as the checkpoint that training began with.
    keys = [set(load_file(path / "model.safetensors")) for path in (tmp_path / "saved", checkpoint(family))]
    assert keys[0] == keys[1]
    configs = [
        json.loads((path / "config.json").read_text()) for path in (tmp_path / "saved", checkpoint(family))
    ]
    assert configs[0]["architectures"] == configs[1]["architectures"]
    assert configs[0]["model_type"] == configs[1]["model_type"]
