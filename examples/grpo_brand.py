# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""GRPO on brand recognition: name the brand in a picture, out of a hundred and more.

The data is a folder of images by class (`data/Coca-Cola/1.jpg`, `data/Pepsi/7.jpg`, ...), or a Hub dataset
with columns `image` and `label`. The prompt lists all names; with `--prompt think` it asks for reasoning.

    accelerate launch examples/grpo_brand.py --data data --output_dir out
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, save_adapter
from hf_vlm_rl.data import train_validation_split
from hf_vlm_rl.evaluation import EvaluationCallback
from hf_vlm_rl.rewards import ChoiceReward, format_reward

PROMPTS = {
    "list": "Which brand is in the picture? Answer with one of these names and nothing else: {names}.",
    "think": "Which brand is in the picture? Reason inside <think></think>, then give the name of the "
    "brand inside <answer></answer>.",
}


@dataclass
class Arguments:
    """What this script takes besides GRPOConfig's arguments."""

    data: str = field(metadata={"help": "folder of images by brand, or Hub id"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    prompt: Literal["list", "think"] = field(default="list", metadata={"help": "names, or think and answer"})
    aliases: str | None = field(default=None, metadata={"help": "JSON file: brand -> list of other names"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    held_out: int = field(default=200, metadata={"help": "images to evaluate on, before and after"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, GRPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/grpo_brand", "learning_rate": 1e-5, "logging_steps": 1}
    batches = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    parser.set_defaults(**defaults, **batches, max_completion_length=256)
    args, training = parser.parse_args_and_config()

    images = load_dataset(args.data, split="train")  # image, label
    names = images.features["label"].names
    asked = [{"role": "user", "content": PROMPTS[args.prompt].format(names=", ".join(names))}]
    rows = images.map(lambda label: {"prompt": asked, "answer": names[label]}, input_columns="label")
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    aliases = json.loads(Path(args.aliases).read_text()) if args.aliases else {}
    rewards = [ChoiceReward(names, aliases)]
    if args.prompt == "think":
        rewards.append(format_reward)
        training.reward_weights = training.reward_weights or [1.0, 0.2]

    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=rewards,
        args=training,
        train_dataset=splits["train"],
        peft_config=policy.lora_config(r=args.lora_r),
    )
    length = training.max_completion_length
    evaluation = EvaluationCallback(splits["validation"], rewards, max_new_tokens=length)
    evaluation.log_to(trainer)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    measured = evaluation.comparison.evaluations("held-out images")
    card = {"summary": f"Names the brand in a picture, one of {len(names)}.", "evaluations": measured}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
