"""Weights that PPO holds with a value model of its own and with a shared critic, for an 8B InternVL.

`python -m benchmarks.critic_memory CHECKPOINT` counts bytes on the meta device; CHECKPOINT is any InternVL
in transformers' format, for its processor.
"""

import sys

import torch
from peft import get_peft_model
from transformers import AutoConfig, AutoProcessor, InternVLForConditionalGeneration

from hf_vlm_rl import AutoVLMPolicy, shared_critic
from hf_vlm_rl.scoring.head import scored_class

GIB = 1 << 30
# InternVL 2.5 8B as of its config.json: InternViT-300M and InternLM2.5-7B, here in Qwen2's layout.
VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
TEXT = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 92553,
}


def held(*modules: torch.nn.Module) -> int:
    """Bytes of the distinct parameters of `modules`."""
    return sum({id(p): p.nbytes for module in modules for p in module.parameters()}.values())


config = AutoConfig.from_pretrained(sys.argv[1])
for part, sizes in ((config.vision_config, VISION), (config.text_config, TEXT)):
    for name, size in sizes.items():
        setattr(part, name, size)
config.text_config.layer_types = ["full_attention"] * TEXT["num_hidden_layers"]
config.text_config.head_dim = 128
with torch.device("meta"):
    model = InternVLForConditionalGeneration._from_config(config, dtype=torch.bfloat16)
    apart = scored_class(type(model), type(model.model))._from_config(config, dtype=torch.bfloat16)
    policy = AutoVLMPolicy.from_model(model, AutoProcessor.from_pretrained(sys.argv[1]))
    policy = get_peft_model(policy, policy.lora_config(r=16))
    alone = held(policy)
    critic = shared_critic(policy, r=16)
print(f"policy with LoRA r=16        {alone / GIB:6.2f} GiB")
print(f"+ value model of its own     {held(apart) / GIB:6.2f} GiB more")
print(f"+ shared critic              {(held(policy, critic) - alone) / GIB:6.2f} GiB more")
