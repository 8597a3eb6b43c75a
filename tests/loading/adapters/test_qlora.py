"""LoRA on a quantised decoder in stock trainers, on bitsandbytes' CPU kernels."""

import warnings

import pytest
import torch
from peft import PeftModel
from transformers import BitsAndBytesConfig

from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel
from tests.loading.adapters.models import EIGHT, FOUR, kinds, logits, quantised
from tests.trainers.runs import dpo, grpo, mixture, parameters, preferences, split_by_change

try:
    from tests.scoring.runs import ppo, rows_of, with_adapter
except ImportError:  # TRL 1.13 and later have no PPOTrainer
    ppo = None

pytestmark = pytest.mark.trl

pytest.importorskip("bitsandbytes", reason="the extra `quant` is not installed")
LAYERS = {4: "Linear4bit", 8: "Linear8bitLt"}


def check(trainer, bits: int) -> None:
    """Train; every adapter weight moves, nothing else does, and the base is as quantised as before."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model = getattr(model, "policy", model)  # PPO wraps policy and value model
    before = parameters(model)
    trainer.train()
    assert split_by_change(model, before) == (set(), set())
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    assert len(trained) == 2 * 14
    kept = torch.float32 if type(trainer).__name__ == "PPOTrainer" else torch.bfloat16  # TRL casts them
    assert {weight.dtype for weight in trained} == {kept}
    policy = model.get_base_model()
    adapted = [module for module in policy.modules() if hasattr(module, "base_layer")]
    assert {type(module.base_layer).__name__ for module in adapted} == {LAYERS[bits]}
    assert kinds(policy)["vision"] == kinds(policy)["projector"] == kinds(policy)["lm_head"] == {"Linear"}


BITS = pytest.mark.parametrize("bits", [4, 8])


@BITS
@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointed"])
def test_grpo(bits, checkpointing, checkpoint, tmp_path):
    policy = quantised(checkpoint("internvl"), FOUR if bits == 4 else EIGHT)
    config = policy.lora_config(r=4)
    options = {"beta": 0.1, "gradient_checkpointing": checkpointing}
    check(grpo(policy, mixture("internvl"), tmp_path, peft=config, **options), bits)


@BITS
def test_dpo(bits, checkpoint, tmp_path):
    policy = quantised(checkpoint("internvl"), FOUR if bits == 4 else EIGHT)
    check(dpo(policy, preferences("internvl"), tmp_path, peft=policy.lora_config(r=4)), bits)


@BITS
@pytest.mark.skipif(ppo is None, reason="TRL 1.13 and later have no PPOTrainer")
def test_ppo(bits, checkpoint, tmp_path):
    config = BitsAndBytesConfig(**FOUR if bits == 4 else EIGHT)
    policy = quantised(checkpoint("internvl"), quantization_config=config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the head is new
        value_model = AutoVLMValueModel.from_pretrained(
            checkpoint("internvl"),
            dtype="float32",
            quantization_config=config,
            processing_class=policy.processing_class,
        )
    rows = rows_of(policy, "internvl")
    trainer = ppo(policy, rows, with_adapter(value_model), tmp_path, peft=policy.lora_config(r=4))
    check(trainer, bits)
    assert type(value_model.score.modules_to_save["default"]) is torch.nn.Linear


def test_an_adapter_trained_on_4_bits_loads_on_4_bits_and_on_the_bare_model(
    checkpoint, bare_for, native_processor_for, tmp_path
):
    policy = quantised(checkpoint("internvl"))
    trainer = grpo(policy, mixture("internvl"), tmp_path / "run", peft=policy.lora_config(r=4))
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    config = BitsAndBytesConfig(**FOUR)
    again = AutoVLMPolicy.from_pretrained(tmp_path / "saved", dtype="float32", quantization_config=config)
    expected = logits(trainer.model.float(), policy.processing_class)
    assert torch.allclose(logits(again, again.processing_class), expected, atol=1e-4)
    full = AutoVLMPolicy.from_pretrained(tmp_path / "saved", dtype="float32")
    native = native_processor_for("internvl")
    bare = PeftModel.from_pretrained(bare_for("internvl"), tmp_path / "saved")
    assert torch.allclose(logits(full, full.processing_class), logits(bare, native), atol=1e-5)
