# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl[ppo]"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""PPO on questions about images, with TRL's PPOTrainer (TRL <= 1.12: `pip install '.[ppo]'`).

Rows are ids that carry their images and, for the reward functions, their answers. The critic is an adapter of
its own on the policy's weights. The data has columns `image`, `question` and `answer`, as for grpo_vqa.py.

    accelerate launch examples/ppo_vqa.py --data data --output_dir out
"""

from dataclasses import dataclass, field

from datasets import load_dataset
from peft import get_peft_model
from trl import TrlParser

from hf_vlm_rl import AutoVLMPolicy, RewardFunctionModel, push_adapter, save_adapter, shared_critic
from hf_vlm_rl.compat import require_ppo
from hf_vlm_rl.data import from_dataset, train_validation_split
from hf_vlm_rl.evaluation import EvaluationCallback
from hf_vlm_rl.rewards import RepetitionReward, normalized_match_reward

require_ppo()
from trl.experimental.ppo import PPOConfig, PPOTrainer  # noqa: E402


@dataclass
class Arguments:
    """What this script takes besides PPOConfig's arguments."""

    data: str = field(metadata={"help": "folder with metadata.jsonl, or Hub id"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank, of policy and critic"})
    held_out: int = field(default=200, metadata={"help": "rows to evaluate on, before and after"})


if __name__ == "__main__":
    parser = TrlParser((Arguments, PPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/ppo_vqa", "learning_rate": 1e-5, "total_episodes": 10_000}
    batches = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    batches |= {"local_rollout_forward_batch_size": 8, "response_length": 64}
    parser.set_defaults(**defaults, **batches, stop_token="eos", num_sample_generations=0)
    args, training = parser.parse_args_and_config()

    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    processing_class = policy.processing_class
    asked = "{question}\nAnswer with a word or a short phrase."
    rows = from_dataset(load_dataset(args.data, split="train"), prompt=asked, images="image")
    splits = train_validation_split(rows, args.held_out)  # no image is in both
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
    if len(splits["train"]) < batch:
        parser.error(f"{len(splits['train'])} rows are fewer than a batch of {batch}; PPOTrainer would hang")

    def encode(row):
        return processing_class.encode_prompt(row["prompt"], row["images"], answer=row["answer"])

    policy = get_peft_model(policy, policy.lora_config(r=args.lora_r))
    rewards = [normalized_match_reward, RepetitionReward()]
    reward_model = RewardFunctionModel(rewards, processing_class, weights=[1.0, 0.1])
    trainer = PPOTrainer(
        model=policy,
        ref_model=None,  # the policy with its adapter switched off
        reward_model=reward_model,
        value_model=shared_critic(policy, r=args.lora_r),
        processing_class=processing_class,
        train_dataset=splits["train"].map(encode, remove_columns=rows.column_names),
        callbacks=[reward_model.callback],  # rewards/<name>/mean in the log
        args=training,
    )
    evaluation = EvaluationCallback(splits["validation"], rewards, max_new_tokens=training.response_length)
    evaluation.log_to(trainer)
    trainer.train()

    measured = evaluation.comparison.evaluations("held-out questions")
    card = {"summary": "Answers questions about images.", "evaluations": measured}
    if training.hub_model_id:
        push_adapter(trainer, training.hub_model_id, card=card)
    else:
        save_adapter(trainer, f"{training.output_dir}/adapter", card=card)
