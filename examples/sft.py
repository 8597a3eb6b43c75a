# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""SFT on images: imitate given answers, as a start for reinforcement learning or for its own sake.

The data: a .jsonl or .json file as LLaVA has it, a .yaml mixture of files, or TRL's columns `image` or
`images`, `prompt` and `completion` (messages) of a Hub dataset or of a folder with images and a
metadata.jsonl (`{"file_names": ["1.jpg", "2.jpg"], "prompt": [{"role": "user", "content": "Compare."}],
"completion": [{"role": "assistant", "content": "..."}]}`; with `file_name`, one image a row).

    accelerate launch examples/sft.py --data data --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, Evaluation, push_adapter, save_adapter
from hf_vlm_rl.data import filter_overlong, load_llava, load_mixture, train_validation_split


@dataclass
class Arguments:
    """What this script takes besides SFTConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, Hub id, .jsonl, .json or .yaml"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    lora_target: str = field(
        default="language", metadata={"help": "language, language+projector, or all (the vision tower too)"}
    )
    held_out: int = field(default=200, metadata={"help": "rows to evaluate on, before and after"})
    max_tokens: int = field(default=4096, metadata={"help": "longer rows, images included, are left out"})


def read(data):
    if data.endswith((".yaml", ".yml")):
        return load_mixture(data, completion=True)
    if data.endswith((".json", ".jsonl")):
        return load_llava(data, completion=True)
    return load_dataset(data, split="train")


if __name__ == "__main__":
    parser = TrlParser((Arguments, SFTConfig), description=__doc__)
    defaults = {"output_dir": "outputs/sft", "learning_rate": 1e-4, "num_train_epochs": 1, "logging_steps": 5}
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    parser.set_defaults(**defaults, **batches, max_length=None)  # TRL's 1024 tokens may cut an image
    args, training = parser.parse_args_and_config()
    training.eval_on_start = True

    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    rows, _ = filter_overlong(read(args.data), policy.processing_class, args.max_tokens, completions=True)
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    trainer = SFTTrainer(
        model=policy,
        processing_class=policy.processing_class,
        args=training,
        train_dataset=splits["train"],
        eval_dataset=splits["validation"],
        peft_config=policy.lora_config(r=args.lora_r, target=args.lora_target),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    trainer.evaluate()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    loss = Evaluation("held-out rows", "loss", len(splits["validation"]), losses[-1], before=losses[0])
    card = {"summary": "Imitates given answers about images.", "evaluations": [loss]}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
