"""Runs of stock trainers whose steps have four batches, on one process, two or four.

Also a script for `on_ranks`, with CHECKPOINT OUT RUN ..., the runs by their names: what they end with goes to
OUT, a file a rank.
"""

import os
import sys
from pathlib import Path
from typing import Any

from tests.trainers.distributed.training import (
    PLAIN_STEPS,
    SAVING,
    group,
    main,
    online,
    pairs,
    preferred,
    rollout,
    taught,
)
from tests.trainers.runs import by_ids


def alike_where_nothing_is_seen(prompts: list, completion_ids: list, **columns: Any) -> list[float]:
    """Rewards that differ for prompts with images alone."""
    rewards = by_ids(completion_ids=completion_ids, **columns)
    return [
        reward if "image" in str(prompt) else 1.0 for prompt, reward in zip(prompts, rewards, strict=True)
    ]


def silent(policy: Any, out: Path, **options: Any) -> dict:
    """GRPO where the groups of half of the ranks teach nothing."""
    return group(policy, out, reward=alike_where_nothing_is_seen, **options)


def kept(policy: Any, out: Path, **options: Any) -> dict:
    """GRPO with LoRA, from which a run can go on; what a row samples does not depend on its process."""
    steps = (
        {"rollout": rollout, "num_generations": 4} | SAVING | PLAIN_STEPS | {"lr_scheduler_type": "linear"}
    )
    return online(policy, out, **steps, peft=policy.lora_config(r=4), **options)


def went_on(policy: Any, out: Path, **options: Any) -> dict:
    """`kept` from its second step, with the checkpoint that $BEGUN names."""
    return kept(policy, out, resume=Path(os.environ["BEGUN"]), **options)


def one_row_less(policy: Any, out: Path, **options: Any) -> dict:
    """DPO for two epochs whose last batch has no row for some of the ranks."""
    rows = {"rows": pairs()[:3], "num_train_epochs": 2, "max_steps": -1}
    return preferred(policy, out, **rows, save_strategy="no", **options)


def odd() -> dict[str, Any]:
    """Three rows for two ranks: the last batch lacks one, and the second rank has the first row again.

    One process, which would train on a shorter last step, is given that row.
    """
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    return {"rows": (pairs()[:3] + pairs())[: 5 - ranks], "gradient_accumulation_steps": 2 // ranks}


def odd_preferred(policy: Any, out: Path, **options: Any) -> dict:
    return preferred(policy, out, **odd(), **options)


def odd_taught(policy: Any, out: Path, **options: Any) -> dict:
    return taught(policy, out, **odd(), **options)


RUNS = (group, silent, preferred, taught, kept, went_on, one_row_less, odd_preferred, odd_taught)


def named(*names: str) -> dict:
    return {"runs": [run for run in RUNS if run.__name__ in names], "resumed": []}


if __name__ == "__main__":
    checkpoint, out, *names = sys.argv[1:]
    main(named(*names), checkpoint, out)
