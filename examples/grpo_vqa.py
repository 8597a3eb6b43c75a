"""GRPO on questions about images, with a reward that fits the kind of answer.

The data has columns `image`, `question` and `answer`: a folder with images and a metadata.jsonl
(`{"file_name": "1.jpg", "question": "How many cups?", "answer": "2"}`), or a Hub dataset.

    accelerate launch examples/grpo_vqa.py --data data --kind number --output_dir out
"""

from dataclasses import dataclass, field
from typing import Literal

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, rewards, save_adapter

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

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    kind: Literal["text", "number", "choice", "yes_no", "math", "ocr"] = field(
        default="text", metadata={"help": "what the answers are; decides the reward"}
    )
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, GRPOConfig), description=__doc__)
    parser.set_defaults(
        output_dir="outputs/grpo_vqa",
        learning_rate=1e-5,
        num_generations=8,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        max_completion_length=512,
        logging_steps=1,
        reward_weights=[1.0, 0.2],
    )
    args, training = parser.parse_args_and_config()

    def prompt(question):
        return {"prompt": [{"role": "user", "content": f"{question}\n{SYSTEM}"}]}

    dataset = load_dataset(args.data, split="train")  # image, question, answer
    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=[KINDS[args.kind], rewards.FormatReward(partial=True)],
        args=training,
        train_dataset=dataset.map(prompt, input_columns="question"),
        peft_config=policy.lora_config(r=args.lora_r),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)

    card = {"summary": "Answers questions about images."}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
