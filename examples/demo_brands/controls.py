"""What the warm start would have become without GRPO, or with a reward that says nothing.

Each control starts from the same warm start, trains the same kind of adapter on the pictures that GRPO got,
and takes about as long.
"""

import random
from collections.abc import Callable
from pathlib import Path

from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.evaluation import EvaluationResult

from ..demo_digits.train import CPU
from .measure import NAME, accuracy, change, sample
from .splits import brand_rows, with_completions
from .stages import Sizes, Stages
from .train import adapter, improve, warm_up, with_one_bar


def more_sft(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path):
    """Train on the labels that GRPO's reward compared answers with."""
    return warm_up(policy, with_completions(graded), sizes.sft_epochs, seed, directory)


def dpo(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path):
    """Sample answers as GRPO does, once, and prefer a right one to a wrong one of the same picture."""
    pairs = preferences(sample(policy, graded), graded, seed)
    return prefer(policy, pairs, sizes.dpo_epochs, seed, directory)


def prefer(policy, pairs: Dataset, epochs: int, seed: int, directory: Path) -> DPOTrainer:
    """Train a LoRA adapter of decoder and projector on pairs of answers."""
    trainer = DPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        train_dataset=pairs,
        peft_config=adapter(policy),
        args=DPOConfig(
            output_dir=str(directory),
            seed=seed,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=1e-4,
            warmup_steps=4,
            logging_steps=1,
            max_length=None,  # truncation would cut image placeholders
            **CPU,
        ),
    )
    with_one_bar(trainer, "loss").train()
    return trainer


def preferences(sampled: EvaluationResult, graded: Dataset, seed: int) -> Dataset:
    """One pair for each picture with answers of both kinds: `prompt`, `image`, `chosen`, `rejected`.

    Args:
        sampled: Several answers to each row of `graded`, with their rewards.
        graded: Columns `prompt` and `image`.
        seed: Of which right answer is paired with which wrong one.

    Raises:
        ValueError: If no picture has answers of both kinds.
    """
    rng = random.Random(seed)
    pairs = []
    for row in sampled.rows:
        by_reward: dict[float, list[str]] = {1.0: [], 0.0: []}
        for text, reward in zip(row.completions, row.rewards[NAME], strict=True):
            by_reward[reward].append(text.strip())
        if all(by_reward.values()):
            chosen, rejected = (rng.choice(by_reward[reward]) for reward in (1.0, 0.0))
            pairs.append({"index": row.index, "chosen": chosen, "rejected": rejected})
    if not pairs:
        raise ValueError(
            f"Got {len(sampled.rows)} pictures, each with answers that are all right or all wrong. Expected "
            "one or more with answers of both kinds: sample at a higher temperature."
        )
    rows = graded.select([pair["index"] for pair in pairs]).select_columns(["prompt", "image"])
    for name in ("chosen", "rejected"):
        rows = rows.add_column(name, [[{"role": "assistant", "content": pair[name]}] for pair in pairs])
    return rows


def random_reward(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path):
    """GRPO as it is, with a coin in place of the reward."""
    rng = random.Random(seed)

    def coin(completions: list, **_) -> list[float]:
        return [float(rng.random() < 0.5) for _ in completions]

    steps = len(graded) // sizes.prompts
    return improve(policy, graded, coin, sizes.prompts, seed, steps, directory)


CONTROLS: dict[str, Callable] = {"sft": more_sft, "dpo": dpo, "random": random_reward}


def run_control(name: str, seed: int, steps: int, directory: Path, logos: Path, sizes: Sizes) -> dict:
    """Train one control from a seed's warm start, and measure it on the same held-out pictures.

    Args:
        name: One of `CONTROLS`.
        seed: The run's.
        steps: Those of the run's GRPO, which decide its pictures.
        directory: Of the run; has `warm_start` and `before.json`.
        logos: The unpacked package of logos.
        sizes: Those of the run.

    Returns:
        Accuracies (shares, 0 to 1) and times.
    """
    stages = Stages()
    policy = AutoVLMPolicy.from_pretrained(directory / "warm_start", dtype="float32")
    graded = brand_rows(logos, sizes.prompts * steps, "graded", seed)
    with stages.stage("training"):
        trainer = CONTROLS[name](policy, graded, sizes, seed, directory)
    held_out = brand_rows(logos, sizes.held_out, "held_out", seed)
    with stages.stage("held out"):
        after = accuracy(trainer.model, held_out)
    before = EvaluationResult.load(directory / "before.json")
    return {
        "seed": seed,
        "control": name,
        "rows": len(trainer.train_dataset),
        "steps": trainer.state.global_step,
        "held_out": change(before, after),
        "seconds": stages.seconds,
    }
