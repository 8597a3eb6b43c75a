"""The two training phases. Each hands its model to a trainer exactly as TRL ships it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from transformers import ProgressCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.evaluation import DiagnosisCallback

from ..demo_digits.train import CPU, OneBar

GROUP = 8  # sampled answers a picture
TEMPERATURE = 1.2  # above 1: the warm start is surer of its answers than it should be
LEARNING_RATE = 5e-4
LONGEST = 8  # tokens of an answer; the longest name has fewer


def adapter(policy, target: str = "language+projector") -> LoraConfig:
    """What every stage trains: LoRA on the decoder and the projector; the vision tower rests."""
    return policy.lora_config(r=16, target=target)


def warm_up(policy, dataset: Dataset, epochs: int, seed: int, directory: Path) -> SFTTrainer:
    """Train a LoRA adapter of decoder and projector on the answers of the few rows of `dataset`."""
    trainer = SFTTrainer(
        model=policy,
        processing_class=policy.processing_class,
        train_dataset=dataset.select_columns(["prompt", "image", "completion"]),
        peft_config=adapter(policy),
        args=SFTConfig(
            output_dir=str(directory),
            seed=seed,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=8e-4,
            warmup_steps=4,
            logging_steps=2,
            max_length=None,  # truncation would cut image placeholders
            **CPU,
        ),
    )
    with_one_bar(trainer, "loss").train()
    return trainer


def merged(trainer: SFTTrainer, directory: Path):
    """A new policy with a trainer's adapter in its weights; `directory` gets its checkpoint."""
    trainer.model.merge_and_unload().save_pretrained(directory)
    trainer.processing_class.save_pretrained(directory)
    return AutoVLMPolicy.from_pretrained(directory, dtype="float32")


def improve(
    policy,
    dataset: Dataset,
    reward: Callable,
    prompts: int,
    seed: int,
    steps: int,
    directory: Path,
    target: str = "language+projector",
    **settings: Any,
) -> GRPOTrainer:
    """Improve `policy` by trial and reward, training a LoRA adapter.

    Args:
        policy: The warmed-up policy; its vision tower rests.
        dataset: Columns `prompt`, `image`, and what the reward reads.
        reward: TRL reward function.
        prompts: Pictures a step; each gets 8 sampled answers.
        seed: Of the sampling and of the adapter's first weights.
        steps: Optimizer steps.
        directory: Where the trainer may write.
        target: Parts of the policy that the adapter is on, as for `VLMPolicy.lora_config`.
        **settings: Of `GRPOConfig`, in place of those below.

    Returns:
        The trainer after training: `policy` with its adapter, and `state.log_history`.
    """
    usual = {
        "max_completion_length": LONGEST,
        "temperature": TEMPERATURE,
        "learning_rate": LEARNING_RATE,
        "warmup_steps": 5,
    }
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=reward,
        train_dataset=dataset,
        peft_config=adapter(policy, target),
        args=GRPOConfig(
            output_dir=str(directory),
            seed=seed,
            max_steps=steps,
            num_generations=GROUP,
            per_device_train_batch_size=GROUP * prompts,
            steps_per_generation=1,
            logging_steps=1,
            **usual | settings,
            **CPU,
        ),
    )
    trainer.add_callback(DiagnosisCallback())
    with_one_bar(trainer, "reward").train()
    return trainer


def with_one_bar(trainer, shown: str):
    """Replace the trainer's printed log by one progress bar with its latest figure."""
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(OneBar(type(trainer).__name__.removesuffix("Trainer"), shown))
    return trainer


def quiet(threads: int) -> None:
    """Let torch have some threads, and leave the one bar of a training alone on the screen."""
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
