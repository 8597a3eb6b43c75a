"""An adapter on a quantised base: the card counts the base's parameters, not the bytes that hold them."""

import torch
from peft import get_peft_model
from transformers import BitsAndBytesConfig

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.hub import save_adapter


def test_the_card_of_a_qlora_run_names_the_quantisation_and_counts_parameters(checkpoint, bare_for, tmp_path):
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), quantization_config=config)
    model = get_peft_model(policy, policy.lora_config(r=4))
    save_adapter(model, tmp_path, base_model="org/tiny")
    content = (tmp_path / "README.md").read_text()
    total = sum(parameter.numel() for parameter in bare_for("internvl").parameters())
    assert "| base while training | 4-bit nf4 |" in content
    assert f"of the base's {total:,})" in content
