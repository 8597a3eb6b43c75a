"""Runs of stock trainers whose steps have four batches, on one process, two or four.

Also a script for `on_ranks`, with CHECKPOINT OUT and perhaps the folder of a run to go on with: what the runs
end with goes to OUT, a file a rank.
"""

import sys
from pathlib import Path
from typing import Any

from tests.trainers.distributed.training import (
    PLAIN_STEPS,
    SAVING,
    group,
    main,
    online,
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


def one_row_less(policy: Any, out: Path, **options: Any) -> dict:
    """DPO for two epochs whose last batch has no row for some of the ranks."""
    return preferred(policy, out, rows=3, num_train_epochs=2, max_steps=-1, save_strategy="no", **options)


RUNS = {"runs": [group, silent, preferred, taught, kept], "resumed": []}


if __name__ == "__main__":
    checkpoint, out, *earlier = sys.argv[1:]
    if earlier:
        main({"runs": [kept], "resumed": []}, checkpoint, out, resume=Path(earlier[0]))
    main(RUNS | {"runs": [*RUNS["runs"], one_row_less]}, checkpoint, out)
