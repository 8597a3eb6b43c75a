"""The shapes that `python -m benchmarks.trainers` measures: a study of its own, or what is asked for."""

import itertools
from collections.abc import Iterator
from typing import Any

# TRL's own defaults, and as many words as a small true vocabulary has.
DEFAULTS: dict[str, Any] = {"checkpointing": True, "vocabulary": 32768}
# What `make bench` runs: what people run; then the work of the model alone, that is without checkpointing and
# with few words: one shape that RL on images is about, what changes it, and the worst cases.
USUAL = {"model": "internvl", "trainer": "grpo", "group": 8, "tiles": 7, "completion": 32, "spread": 1.0}
USUAL |= {"vision": "frozen", "words": 0}
STUDY: list[dict[str, Any]] = [
    DEFAULTS,
    DEFAULTS | {"micro": 1},
    DEFAULTS | {"model": "qwen2_5_vl"},
    DEFAULTS | {"model": "qwen2_5_vl", "micro": 1},
    DEFAULTS | {"model": "qwen2_5_vl", "autocast": True},
    DEFAULTS | {"model": "qwen2_5_vl", "vocabulary": 151936},
    DEFAULTS | {"trainer": "dpo"},
    DEFAULTS | {"completion": 128},
    {},
    {"vision": "trained"},
    {"model": "qwen2_5_vl"},
    {"model": "qwen2_5_vl", "vision": "trained"},
    {"trainer": "dpo"},
    {"trainer": "dpo", "model": "qwen2_5_vl"},
    # Nothing or little to share: the gate must cost nothing.
    {"group": 2, "tiles": 0, "completion": 128},
    {"group": 8, "tiles": 0, "completion": 128},
    {"group": 2, "tiles": 1, "completion": 128},
    {"group": 2},
    {"group": 4},
    {"group": 16},
    {"tiles": 1},
    {"tiles": 13},
    {"completion": 128},
    # 256 tokens a tile as InternVL's: prompt of 14 times the completion.
    {"model": "internvl-448", "completion": 128},
    {"completion": 512},
    {"completion": 512, "spread": 4.0},
]


def cells(given: dict[str, list | None], options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The study if nothing is given, else the product of what is given, the rest as usual."""
    if not any(given.values()) and not options:
        yield from (USUAL | changes for changes in STUDY)
        return
    axes = [given[name] or [usual] for name, usual in USUAL.items()]
    yield from (dict(zip(USUAL, values, strict=True)) | options for values in itertools.product(*axes))
