# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""DPO on preferences about images: of two answers to one prompt, the chosen and the rejected.

The data has TRL's columns `images`, `prompt`, `chosen` and `rejected` (messages): a .jsonl or .json file of
rows `{"images": ["1.jpg"], "prompt": [{"role": "user", "content": "What is it?"}], "chosen": [{"role":
"assistant", "content": "..."}], "rejected": [...]}`, a folder with images and a metadata.jsonl of them
(`file_names` in place of `images`), or a Hub dataset.

    accelerate launch examples/dpo.py --data data.jsonl --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, Evaluation, push_adapter, save_adapter
from hf_vlm_rl.data import filter_overlong, load_messages, train_validation_split


@dataclass
class Arguments:
    """What this script takes besides DPOConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, Hub id, .jsonl or .json"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    held_out: int = field(default=200, metadata={"help": "pairs to evaluate on, after training"})
    max_tokens: int = field(default=4096, metadata={"help": "longer rows, images included, are left out"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, DPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/dpo", "learning_rate": 5e-6, "num_train_epochs": 1, "logging_steps": 5}
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    parser.set_defaults(**defaults, **batches, max_length=None)  # TRL's 1024 tokens may cut an image
    args, training = parser.parse_args_and_config()

    in_file = args.data.endswith((".json", ".jsonl"))
    rows = load_messages(args.data) if in_file else load_dataset(args.data, split="train")
    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    rows, _ = filter_overlong(rows, policy.processing_class, args.max_tokens, completions=True)
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    trainer = DPOTrainer(
        model=policy,  # its reference is the policy without its adapter
        processing_class=policy.processing_class,
        args=training,
        train_dataset=splits["train"],
        eval_dataset=splits["validation"],
        peft_config=policy.lora_config(r=args.lora_r),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    # Before training there is nothing to measure: policy and reference are the same.
    after = trainer.evaluate()["eval_rewards/accuracies"]
    accuracy = Evaluation("held-out pairs", "preference accuracy", len(splits["validation"]), after=after)
    card = {"summary": "Answers about images as preferred.", "evaluations": [accuracy]}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
