"""SFT on images: imitate given answers, as a start for reinforcement learning or for its own sake.

The data has TRL's columns `image` or `images`, `prompt` and `completion` (messages): a folder with images and
a metadata.jsonl (`{"file_names": ["1.jpg", "2.jpg"], "prompt": [{"role": "user", "content": "Compare."}],
"completion": [{"role": "assistant", "content": "..."}]}`; with `file_name`, one image a row), or a
Hub dataset.

    accelerate launch examples/sft.py --data data --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, save_adapter


@dataclass
class Arguments:
    """What this script takes besides SFTConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    lora_target: str = field(
        default="language", metadata={"help": "language, language+projector, or all (the vision tower too)"}
    )


if __name__ == "__main__":
    parser = TrlParser((Arguments, SFTConfig), description=__doc__)
    parser.set_defaults(
        output_dir="outputs/sft",
        learning_rate=1e-4,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        max_length=None,  # TRL's default of 1024 tokens may cut an image, which is refused
        logging_steps=5,
    )
    args, training = parser.parse_args_and_config()

    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    trainer = SFTTrainer(
        model=policy,
        processing_class=policy.processing_class,
        args=training,
        train_dataset=load_dataset(args.data, split="train"),
        peft_config=policy.lora_config(r=args.lora_r, target=args.lora_target),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter")
