"""For `on_two_ranks`, with CHECKPOINT OUT: GRPO with a process whose rows have no answer to compare with."""

import json
import sys
from pathlib import Path

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.rewards import exact_match_reward, format_reward
from tests.trainers.distributed.launch import leave
from tests.trainers.runs import grpo, user, woman


def main(checkpoint: str, out: Path) -> None:
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    rows = [
        {"prompt": user(f"Who is it, {number}?"), "image": woman(), "answer": answer}
        for number, answer in enumerate(["a woman", None, "a woman", "a woman"])
    ]
    # Each process takes one prompt a step: in the first step, the second one is without an answer.
    steps = {"steps_per_generation": 1, "max_steps": 2, "shuffle_dataset": False}
    reward = [exact_match_reward, format_reward]
    trainer = grpo(policy, rows, out, reward=reward, peft=policy.lora_config(r=4), **steps)
    trainer.train()
    if trainer.accelerator.is_main_process:
        (out / "log.json").write_text(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    leave()
