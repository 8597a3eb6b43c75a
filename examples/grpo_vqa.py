# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl[rewards]"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""GRPO on questions about images, with a reward that fits the kind of answer.

The data: a folder with images and a metadata.jsonl (`{"file_name": "1.jpg", "question": "How many cups?",
"answer": "2"}`), a Hub dataset with such columns, or whatever else `load_any` reads.

    accelerate launch examples/grpo_vqa.py --data data --kind number --output_dir out
"""

from dataclasses import dataclass, field
from typing import Literal

from trl import GRPOConfig, GRPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, rewards, save_adapter
from hf_vlm_rl.data import load_any, train_validation_split
from hf_vlm_rl.evaluation import EvaluationCallback
from hf_vlm_rl.vllm import vllm_rollout

KINDS = {
    "text": rewards.normalized_match_reward,
    "number": rewards.numeric_reward,
    "choice": rewards.multiple_choice_reward,
    "yes_no": rewards.yes_no_reward,
    "math": rewards.math_reward,
    "ocr": rewards.ocr_reward,
}
SYSTEM = "Reason inside <think></think>, then give the answer, and only that, inside <answer></answer>."


@dataclass
class Arguments:
    """What this script takes besides GRPOConfig's arguments."""

    data: str = field(metadata={"help": "folder, file or Hub id, as load_any reads"})
    kind: Literal[tuple(KINDS)] = field(default="text", metadata={"help": "of answers; decides the reward"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})
    held_out: int = field(default=200, metadata={"help": "rows to evaluate on, before and after"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, GRPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/grpo_vqa", "learning_rate": 1e-5, "logging_steps": 1}
    defaults["log_multimodal"] = False  # with it, TRL's processes wait for ever if one has no image
    batches = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    parser.set_defaults(**defaults, **batches, max_completion_length=512, reward_weights=[1.0, 0.2])
    args, training = parser.parse_args_and_config()
    splits = train_validation_split(load_any(args.data, system=SYSTEM), args.held_out)  # no image is in both
    reward_funcs = [KINDS[args.kind], rewards.FormatReward(partial=True)]
    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=reward_funcs,
        args=training,
        train_dataset=splits["train"],
        peft_config=policy.lora_config(r=args.lora_r),
        rollout_func=vllm_rollout if training.use_vllm else None,
    )
    length = training.max_completion_length
    evaluation = EvaluationCallback(splits["validation"], reward_funcs, max_new_tokens=length)
    evaluation.log_to(trainer)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    card = {"summary": "Answers questions about images."}
    card["evaluations"] = evaluation.comparison.evaluations("held-out questions")
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
