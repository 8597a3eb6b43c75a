"""The two training phases. Each hands its model to a trainer exactly as TRL ships it."""

from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from transformers import ProgressCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

CPU = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,  # TRL turns it on; it only costs time on a model this small
    "report_to": "none",
    "save_strategy": "no",
}


class OneBar(ProgressCallback):
    """Progress bar with a name that shows the latest `shown` figure instead of printing every log entry."""

    def __init__(self, name: str, shown: str):
        super().__init__()
        self.name, self.shown = name, shown

    def on_train_begin(self, args, state, control, **kwargs):
        """Name the bar."""
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description(self.name)

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Write the figure behind the bar."""
        if self.training_bar is not None and self.shown in logs:
            self.training_bar.set_postfix({self.shown: f"{float(logs[self.shown]):.2f}"})


def exact_answer_reward(completions: list[list[dict]], answer: list[str], **_) -> list[float]:
    """1.0 for a completion that is the digit and nothing else, otherwise 0.0."""
    texts = [messages[0]["content"].strip() for messages in completions]
    return [float(text == digit) for text, digit in zip(texts, answer, strict=True)]


def warm_up(policy, dataset: Dataset, seed: int, directory: Path) -> None:
    """Train all of `policy`, in place, on the answers of the few rows of `dataset`."""
    trainer = SFTTrainer(
        model=policy,
        processing_class=policy.processing_class,
        train_dataset=dataset.select_columns(["prompt", "image", "completion"]),
        args=SFTConfig(
            output_dir=str(directory),
            seed=seed,
            num_train_epochs=60,
            per_device_train_batch_size=16,
            learning_rate=2e-3,
            warmup_steps=10,
            logging_steps=10,
            max_length=None,  # truncation would cut image placeholders
            **CPU,
        ),
    )
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(OneBar("SFT", "loss"))
    trainer.train()


def improve(
    policy,
    dataset: Dataset,
    seed: int,
    steps: int,
    directory: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> GRPOTrainer:
    """Improve `policy` by trial and reward on the images of `dataset`, training only the adapter.

    Every 8 steps (512 completions, used twice) 64 images get 8 sampled answers each.

    Args:
        policy: The warmed-up policy. Its decoder gets a LoRA adapter; its vision tower rests.
        dataset: Columns `prompt`, `image`, and `answer` for the reward.
        seed: Of the sampling and of the adapter's first weights.
        steps: Optimizer steps of 128 completions each.
        directory: Where the trainer may write.
        callbacks: Of the trainer.

    Returns:
        The trainer after training: `policy` with its adapter, and `state.log_history`.
    """
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=exact_answer_reward,
        train_dataset=dataset,
        peft_config=policy.lora_config(r=16),
        callbacks=list(callbacks),
        args=GRPOConfig(
            output_dir=str(directory),
            seed=seed,
            max_steps=steps,
            num_generations=8,
            per_device_train_batch_size=128,
            steps_per_generation=4,
            num_iterations=2,
            max_completion_length=4,
            learning_rate=3e-3,
            warmup_steps=12,
            logging_steps=8,
            **CPU,
        ),
    )
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(OneBar("GRPO", "reward"))
    trainer.train()
    return trainer
