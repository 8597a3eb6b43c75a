# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl[rewards,vllm]"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""AsyncGRPO on questions about images: vLLM samples on cards of its own while TRL's AsyncGRPOTrainer trains.

Columns as for ppo_vqa.py. In three terminals (docs/async.md: on several machines, with all weights):

    CUDA_VISIBLE_DEVICES=0 VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL \\
        --max-model-len 8192 --logprobs-mode processed_logprobs --max-logprobs -1 --enable-scale-out \\
        --enable-lora --max-lora-rank 16 --max-loras 6
    hf-vlm-rl vllm-front MODEL --server http://127.0.0.1:8000
    CUDA_VISIBLE_DEVICES=1 python examples/async_grpo_vqa.py --model MODEL --data data --kind number
"""

from dataclasses import dataclass, field
from typing import Literal

from datasets import load_dataset
from trl import TrlParser

from hf_vlm_rl import AutoVLMPolicy, push_adapter, register, rewards, save_adapter
from hf_vlm_rl.data import from_dataset, train_validation_split
from hf_vlm_rl.evaluation import EvaluationCallback

try:  # from TRL 1.18 on
    from trl import AsyncGRPOConfig, AsyncGRPOTrainer
except ImportError:
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

KINDS = {
    "text": rewards.normalized_match_reward,
    "number": rewards.numeric_reward,
    "choice": rewards.multiple_choice_reward,
    "yes_no": rewards.yes_no_reward,
}
SYSTEM = "Reason inside <think></think>, then give the answer, and only that, inside <answer></answer>."


@dataclass
class Arguments:
    """What this script takes besides AsyncGRPOConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    kind: Literal[tuple(KINDS)] = field(default="text", metadata={"help": "of answers; decides the reward"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank, at most the server's --max-lora-rank"})
    held_out: int = field(default=200, metadata={"help": "rows to evaluate on, before and after"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, AsyncGRPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/async_grpo_vqa", "learning_rate": 1e-5, "logging_steps": 1}
    defaults["vllm_server_base_url"] = "http://127.0.0.1:8100"  # the front, which asks vLLM with the images
    parser.set_defaults(**defaults, num_generations=8, max_completion_length=512, dtype="bfloat16")
    args, training = parser.parse_args_and_config()

    register()  # from here on the trainer makes a policy of the id
    skeleton = AutoVLMPolicy.from_pretrained(args.model, device_map="meta")  # without weights
    tokenizer = skeleton.processing_class.enable_tools().as_tokenizer()  # TRL parses every answer
    rows = from_dataset(
        load_dataset(args.data, split="train"), prompt="question", images="image", system=SYSTEM
    )
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    reward_funcs = [KINDS[args.kind], rewards.FormatReward(partial=True)]
    trainer = AsyncGRPOTrainer(
        model=args.model,
        processing_class=tokenizer,
        reward_funcs=reward_funcs,
        args=training,
        train_dataset=splits["train"].map(tokenizer.with_tickets, remove_columns="images"),
        peft_config=skeleton.lora_config(r=args.lora_r),
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
