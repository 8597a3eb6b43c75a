"""What the warm start would have become without GRPO, with another reward, or with other settings.

Each control starts from the same warm start, trains the same kind of adapter on the pictures that GRPO got,
and takes about as long.
"""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset
from peft import get_peft_model
from transformers import set_seed
from trl import DPOConfig, DPOTrainer

from hf_vlm_rl import AutoVLMPolicy, RewardFunctionModel, shared_critic
from hf_vlm_rl.compat import require_ppo
from hf_vlm_rl.evaluation import EvaluationResult

from ..demo_digits.train import CPU
from .measure import NAME, REWARD, accuracy, change, sample
from .splits import brand_rows, with_completions
from .stages import Sizes, Stages
from .train import LEARNING_RATE, LONGEST, TEMPERATURE, adapter, improve, warm_up, with_one_bar


class Trained(NamedTuple):
    """What a control leaves: its model, the rows it trained on, and its optimizer steps."""

    model: Any
    rows: int
    steps: int


def _trained(trainer) -> Trained:
    return Trained(trainer.model, len(trainer.train_dataset), trainer.state.global_step)


def more_sft(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path) -> Trained:
    """Train on the labels that GRPO's reward compared answers with."""
    return _trained(warm_up(policy, with_completions(graded), sizes.sft_epochs, seed, directory))


def dpo(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path) -> Trained:
    """Sample answers as GRPO does, once, and prefer a right one to a wrong one of the same picture."""
    pairs = preferences(sample(policy, graded), graded, seed)
    return _trained(prefer(policy, pairs, sizes.dpo_epochs, seed, directory))


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
            learning_rate=2e-5,
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


def random_reward(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path) -> Trained:
    """GRPO as it is, with a coin in place of the reward."""
    rng = random.Random(seed)

    def coin(completions: list, **_) -> list[float]:
        return [float(rng.random() < 0.5) for _ in completions]

    return _other_grpo(policy, graded, sizes, seed, directory, coin)


def cool(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path) -> Trained:
    """GRPO that samples at temperature 0.7: surer answers, and more groups that are silent."""
    return _other_grpo(policy, graded, sizes, seed, directory, temperature=0.7)


def decoder(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path) -> Trained:
    """GRPO whose adapter leaves the projector as it is."""
    return _other_grpo(policy, graded, sizes, seed, directory, target="language")


def small_steps(policy, graded: Dataset, sizes: Sizes, seed: int, directory: Path) -> Trained:
    """GRPO with a quarter of the pictures a step, and four times as many steps."""
    fewer = dataclasses.replace(sizes, prompts=max(1, sizes.prompts // 4))
    return _other_grpo(policy, graded, fewer, seed, directory)


def _other_grpo(
    policy,
    graded: Dataset,
    sizes: Sizes,
    seed: int,
    directory: Path,
    reward: Callable = REWARD,
    **changes: Any,
) -> Trained:
    """GRPO on all of `graded` with other settings of `improve`."""
    steps = len(graded) // sizes.prompts
    trainer = improve(policy, graded, reward, sizes.prompts, seed, steps, directory, **changes)
    return _trained(trainer)


def ppo(
    policy,
    graded: Dataset,
    sizes: Sizes,
    seed: int,
    directory: Path,
    reward: Callable = REWARD,
    temperature: float = TEMPERATURE,
) -> Trained:
    """Sample one answer to each picture, and let a critic say how much better it was than expected.

    Raises:
        ImportError: If the installed TRL has no PPO any more.
    """
    require_ppo()
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    processing_class = policy.processing_class
    batch, passes = 2 * sizes.prompts, 2
    rows = graded.map(  # PPO knows ids alone, so they carry their image, and the answer for the reward
        lambda row: processing_class.encode_prompt(row["prompt"], [row["image"]], answer=row["answer"]),
        remove_columns=graded.column_names,
    )
    set_seed(seed)
    policy = get_peft_model(policy, adapter(policy))
    reward_model = RewardFunctionModel(reward, processing_class)
    trainer = PPOTrainer(
        model=policy,
        ref_model=None,  # the policy with its adapter switched off
        reward_model=reward_model,
        value_model=shared_critic(policy, r=16, target="language+projector"),
        processing_class=processing_class,
        train_dataset=rows,
        callbacks=[reward_model.callback],
        args=PPOConfig(
            output_dir=str(directory),
            seed=seed,
            total_episodes=len(rows),
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=1,
            num_mini_batches=1,
            num_ppo_epochs=passes,
            local_rollout_forward_batch_size=batch,
            learning_rate=LEARNING_RATE,
            response_length=LONGEST,
            temperature=temperature,
            stop_token="eos",
            kl_coef=0.0,
            num_sample_generations=0,
            **CPU,
        ),
    )
    trainer.train()
    return Trained(policy, len(rows), passes * (len(rows) // batch))


CONTROLS: dict[str, Callable[..., Trained]] = {
    "sft": more_sft,
    "dpo": dpo,
    "random": random_reward,
    "cool": cool,
    "decoder": decoder,
    "small_steps": small_steps,
    "ppo": ppo,
}


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
        trained = CONTROLS[name](policy, graded, sizes, seed, directory)
    held_out = brand_rows(logos, sizes.held_out, "held_out", seed)
    with stages.stage("held out"):
        after = accuracy(trained.model, held_out)
    before = EvaluationResult.load(directory / "before.json")
    return {
        "seed": seed,
        "control": name,
        "rows": trained.rows,
        "steps": trained.steps,
        "held_out": change(before, after),
        "seconds": stages.seconds,
    }
