# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl[quant]"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""GRPO of a 7B model on cards of 24 GB: a 4-bit decoder, LoRA, gradient checkpointing, small images.

Each card holds the whole quantised model and works on its own rows. The data: columns `image`, `question` and
`answer` of a folder or a Hub dataset, as for grpo_vqa.py. Needs `pip install '.[quant]'`.

    accelerate launch --config_file examples/accelerate_configs/ddp.yaml --num_processes 2 \
        examples/qlora_24gb.py --data data --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import BitsAndBytesConfig
from trl import GRPOConfig, GRPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, save_adapter
from hf_vlm_rl.data import filter_overlong, from_dataset, train_validation_split
from hf_vlm_rl.evaluation import EvaluationCallback
from hf_vlm_rl.rewards import normalized_match_reward


@dataclass
class Arguments:
    """What this script takes besides GRPOConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    model: str = field(default="Qwen/Qwen2.5-VL-7B-Instruct", metadata={"help": "Hub id or directory"})
    max_pixels: int | None = field(
        default=None, metadata={"help": "largest image area (Qwen families), such as 401408 for 512 tokens"}
    )
    max_tiles: int | None = field(default=None, metadata={"help": "most tiles per image (InternVL)"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    held_out: int = field(default=200, metadata={"help": "rows to evaluate on, before and after"})
    max_tokens: int = field(default=2048, metadata={"help": "longer prompts, images included, are left out"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, GRPOConfig), description=__doc__)
    batches = {"num_generations": 8, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}
    memory = {"gradient_checkpointing": True, "optim": "paged_adamw_8bit", "max_completion_length": 256}
    defaults = {"output_dir": "outputs/qlora_24gb", "learning_rate": 1e-5, "logging_steps": 1}
    parser.set_defaults(**defaults, **batches, **memory)  # two cards x 4 rows: one prompt at a time
    args, training = parser.parse_args_and_config()

    policy = AutoVLMPolicy.from_pretrained(
        args.model,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype="bfloat16",
        ),
        device_map={"": training.device},  # each process its own card
        max_pixels=args.max_pixels,
        max_tiles=args.max_tiles,
    )
    asked = "{question}\nAnswer with a word or a short phrase."
    rows = from_dataset(load_dataset(args.data, split="train"), prompt=asked, images="image")
    rows, _ = filter_overlong(rows, policy.processing_class, args.max_tokens)
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=normalized_match_reward,
        args=training,
        train_dataset=splits["train"],
        peft_config=policy.lora_config(r=args.lora_r),
    )
    length = training.max_completion_length
    evaluation = EvaluationCallback(splits["validation"], normalized_match_reward, max_new_tokens=length)
    evaluation.log_to(trainer)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    card = {"evaluations": evaluation.comparison.evaluations("held-out questions")}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
