# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""GRPO on referring expressions: find what a phrase describes, rewarded by intersection over union.

The data has columns `image`, `expression` and `box`, [x1, y1, x2, y2] in pixels of the original image: a
folder with images and a metadata.jsonl (`{"file_name": "1.jpg", "expression": "the red car", "box": [...]}`),
or a Hub dataset. The model is asked for boxes in the coordinates that its family was trained on.

    accelerate launch examples/grpo_rec.py --data data --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, BoxCoordinates, push_adapter, save_adapter
from hf_vlm_rl.data import train_validation_split
from hf_vlm_rl.evaluation import EvaluationCallback
from hf_vlm_rl.rewards import IoUReward, format_reward

QUESTION = (
    "Where in the picture is {expression}? Reason inside <think></think>, then give its box inside "
    "<answer></answer>, written like {example}."
)


@dataclass
class Arguments:
    """What this script takes besides GRPOConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    scale: int | None = field(
        default=None, metadata={"help": "coordinates from 0 to this, for families that document none"}
    )
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    held_out: int = field(default=200, metadata={"help": "rows to evaluate on, before and after"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, GRPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/grpo_rec", "learning_rate": 1e-5, "logging_steps": 1}
    batches = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    parser.set_defaults(**defaults, **batches, max_completion_length=256, reward_weights=[1.0, 0.2])
    args, training = parser.parse_args_and_config()

    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    processing_class = policy.processing_class
    boxes = BoxCoordinates.relative(args.scale) if args.scale else BoxCoordinates.of(processing_class)
    example = boxes.to_text([160, 120, 480, 360], (640, 480))

    def prompt(expression):
        content = QUESTION.format(expression=expression, example=example)
        return {"prompt": [{"role": "user", "content": content}]}

    rows = load_dataset(args.data, split="train").map(prompt, input_columns="expression")
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    reward_funcs = [IoUReward(coordinates=boxes), format_reward]
    trainer = GRPOTrainer(
        model=policy,
        processing_class=processing_class,
        reward_funcs=reward_funcs,
        args=training,
        train_dataset=splits["train"],
        peft_config=policy.lora_config(r=args.lora_r),
    )
    length = training.max_completion_length
    evaluation = EvaluationCallback(splits["validation"], reward_funcs, max_new_tokens=length)
    evaluation.log_to(trainer)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    measured = evaluation.comparison.evaluations("held-out expressions")
    card = {"summary": "Finds what a phrase describes and gives its box.", "evaluations": measured}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
