"""Stock GRPOTrainer of the TRL that is found, on the stock model or on the policy."""

import json
from typing import Any

import torch
from datasets import Dataset, Image, List
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from hf_vlm_rl import AutoVLMPolicy

from ..trainers import spread
from .meter import Meter
from .setting import GROUP, LORA, Setting, asked

# By hand, where a policy has `lora_config`: the tower's layers have modules of the same names.
OF_THE_DECODER = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


def parts(side: str, checkpoint: str) -> dict[str, Any]:
    """Model, processing class and adapter of the stock model, or of the policy."""
    if side.startswith("policy"):
        policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
        return {
            "model": policy,
            "processing_class": policy.processing_class,
            "peft_config": policy.lora_config(**LORA),
        }
    return {
        "model": AutoModelForImageTextToText.from_pretrained(checkpoint, dtype="float32"),
        "processing_class": AutoProcessor.from_pretrained(checkpoint),
        "peft_config": LoraConfig(**LORA, task_type="CAUSAL_LM", target_modules=OF_THE_DECODER),
    }


def dataset(setting: Setting) -> Dataset:
    """The rows as TRL wants them; images stay encoded until a row is read."""
    with open(setting.rows) as lines:
        rows = [json.loads(line) for line in lines][: setting.steps]
    columns = [
        {
            "prompt": [{"role": "user", "content": row["messages"][0]["content"].removeprefix("<image>")}],
            "images": row["images"],
        }
        for row in rows
    ]
    return Dataset.from_list(columns).cast_column("images", List(Image()))


def main() -> None:
    torch.set_num_threads(1)
    side, setting, out = asked()
    trainer = GRPOTrainer(
        **parts(side, setting.checkpoint),
        reward_funcs=spread,
        train_dataset=dataset(setting),
        args=GRPOConfig(
            output_dir=f"{setting.folder}/out",
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=1,
            learning_rate=0.0,
            max_steps=setting.steps,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
            gradient_checkpointing=setting.checkpointing,
            num_generations=GROUP,
            per_device_train_batch_size=setting.micro,
            gradient_accumulation_steps=GROUP // setting.micro,
            max_completion_length=setting.completion,
            generation_kwargs={
                "min_new_tokens": setting.completion,
                "suppress_tokens": setting.never,
            },
        ),
    )
    Meter(trainer, side, setting, out)
    trainer.train()


if __name__ == "__main__":
    main()
