"""DPO on preferences about images: of two answers to one prompt, the chosen and the rejected.

The data has TRL's columns `images`, `prompt`, `chosen` and `rejected` (messages): a folder with images and a
metadata.jsonl (`{"file_names": ["1.jpg"], "prompt": [{"role": "user", "content": "What is it?"}], "chosen":
[{"role": "assistant", "content": "..."}], "rejected": [...]}`), or a Hub dataset.

    accelerate launch examples/dpo.py --data data --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, save_adapter


@dataclass
class Arguments:
    """What this script takes besides DPOConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, DPOConfig), description=__doc__)
    parser.set_defaults(
        output_dir="outputs/dpo",
        learning_rate=5e-6,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        max_length=None,  # TRL's default of 1024 tokens may cut an image, which is refused
        logging_steps=5,
    )
    args, training = parser.parse_args_and_config()

    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    trainer = DPOTrainer(
        model=policy,  # its reference is the policy without its adapter
        processing_class=policy.processing_class,
        args=training,
        train_dataset=load_dataset(args.data, split="train"),
        peft_config=policy.lora_config(r=args.lora_r),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter")
