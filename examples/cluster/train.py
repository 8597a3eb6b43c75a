"""GRPO that may be ended at any time and started anew, for schedulers such as SLURM and Kubernetes.

Begins with the last checkpoint of --output_dir, if there is one. A SIGTERM to any process lets all of them
save and end after the same step. The data is as in grpo_vqa.py; answers are texts to be read.

    accelerate launch examples/cluster/train.py --data data --output_dir out
"""

import os
import signal
from dataclasses import dataclass, field

import torch
from torch import distributed
from transformers import TrainerCallback, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer, TrlParser

from hf_vlm_rl import AutoVLMPolicy, rewards, save_adapter
from hf_vlm_rl.data import load_any
from hf_vlm_rl.vllm import vllm_rollout


@dataclass
class Arguments:
    """What this script takes besides GRPOConfig's arguments."""

    data: str = field(metadata={"help": "folder, file or Hub id, as load_any reads"})
    model: str = field(default="Qwen/Qwen2.5-VL-3B-Instruct", metadata={"help": "Hub id or directory"})
    dtype: str = field(default="bfloat16", metadata={"help": "of the model's weights"})
    lora_r: int = field(default=16, metadata={"help": "LoRA rank"})


class EndTogether(TrainerCallback):
    """After a SIGTERM to any process, all save and end after the same step.

    Schedulers signal processes one by one, and a rank that ends a step before the others lets them wait.
    """

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number, frame):
        self.asked = True

    def on_step_end(self, args, state, control, **kwargs):
        asked = torch.tensor(float(self.asked), device=args.device)
        if distributed.is_initialized():
            distributed.all_reduce(asked, distributed.ReduceOp.MAX)
        if asked:
            control.should_save = control.should_training_stop = True


if __name__ == "__main__":
    parser = TrlParser((Arguments, GRPOConfig), description=__doc__)
    defaults = {"output_dir": "outputs/cluster", "learning_rate": 1e-5, "logging_steps": 1}
    defaults["log_multimodal"] = False  # with it, TRL's processes wait for ever if one has no image
    batches = {"num_generations": 8, "per_device_train_batch_size": 8, "max_completion_length": 512}
    parser.set_defaults(**defaults, **batches, save_steps=50)
    args, training = parser.parse_args_and_config()
    set_seed(training.seed)  # of the adapter's first weights
    policy = AutoVLMPolicy.from_pretrained(args.model, dtype=args.dtype)
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=rewards.ocr_reward,
        args=training,
        train_dataset=load_any(args.data),
        peft_config=policy.lora_config(r=args.lora_r),
        rollout_func=vllm_rollout if training.use_vllm else None,
        callbacks=[EndTogether()],
    )
    last = get_last_checkpoint(training.output_dir) if os.path.isdir(training.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    ended = trainer.state.global_step < trainer.state.max_steps
    if not ended:
        save_adapter(trainer, f"{training.output_dir}/adapter", card={"summary": "Reads what is on images."})
    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
    if ended:  # a scheduler would take status 0 for a run that is done
        raise SystemExit("SIGTERM came before the last step; the same command goes on from the checkpoint.")
