"""Stock TRL on the stock model against stock TRL on the policy: same weights, data and seeds.

`python -m benchmarks.trainers` trains the two in turns in one process, one step each, and prints per shape
the ratio stock / policy of each phase's time, of the whole step's, and of the peak memory of forward and
backward, next to the token ratio that bounds the update. Figures are medians.
"""

import argparse
import itertools
import platform
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import trl
from datasets import Dataset
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

from hf_vlm_rl import VLMPolicy

from .models import SIZES, TILING, image, pair
from .probe import PHASES, Probe

QUESTION = "What is it?"
COLUMNS = [
    "model", "trainer", "rows", "tiles", "prompt", "completion", "vision", "token ratio", *PHASES,
    "**step**", "update", "memory", "log-probs differ", "loss differs", "gradients differ",
]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A step: `group` completions of one prompt with an image of `tiles` tiles; DPO: half as many pairs."""

    trainer: str
    group: int
    tiles: int
    completion: int
    vision: str


def common(out: str, device: str, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "output_dir": out,
        "report_to": "none",
        "use_cpu": device == "cpu",
        "bf16": dtype is torch.bfloat16,
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "gradient_checkpointing": False,
        "learning_rate": 0.0,  # every step is the same step
        "max_steps": 1,
        "dataloader_pin_memory": False,
    }


def spread(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """A reward that differs between rows."""
    return [index % 7 / 7 for index in range(len(completion_ids))]


def _messages(name: str, shape: Shape) -> list[dict[str, Any]]:
    content = [{"type": "image", "image": picture} for picture in image(name, shape.tiles)]
    return [{"role": "user", "content": [*content, {"type": "text", "text": QUESTION}]}]


def _columns(name: str, shape: Shape) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt": [{"role": "user", "content": QUESTION}]}
    return row | ({"images": image(name, shape.tiles)} if shape.tiles else {})


def grpo(model: Any, processing: Any, name: str, shape: Shape, options: dict[str, Any]) -> GRPOTrainer:
    config = model.get_base_model().config
    # Stock samples placeholders, too, and fails on them in the update.
    placeholders = [config.image_token_id, getattr(config, "video_token_id", None)]
    return GRPOTrainer(
        model=model,
        processing_class=processing,
        reward_funcs=spread,
        train_dataset=Dataset.from_list([_columns(name, shape)]),
        args=GRPOConfig(
            per_device_train_batch_size=shape.group,
            num_generations=shape.group,
            max_completion_length=shape.completion,
            generation_kwargs={
                "min_new_tokens": shape.completion,
                "suppress_tokens": [index for index in placeholders if index is not None],
            },
            **options,
        ),
    )


def dpo(model: Any, processing: Any, name: str, shape: Shape, options: dict[str, Any]) -> DPOTrainer:
    # A letter and its blank are a token each in these tokenizers.
    texts = [
        " ".join(itertools.islice(itertools.cycle(letters), shape.completion // 2))
        for letters in ("xy", "zq")
    ]
    answers = {
        key: [{"role": "assistant", "content": text}]
        for key, text in zip(("chosen", "rejected"), texts, strict=True)
    }
    pairs = max(shape.group // 2, 1)
    return DPOTrainer(
        model=model,
        processing_class=processing,
        train_dataset=Dataset.from_list([_columns(name, shape) | answers] * pairs),
        args=DPOConfig(per_device_train_batch_size=pairs, max_length=None, **options),
    )


TRAINERS = {"grpo": grpo, "dpo": dpo}

# What `make bench` runs: one shape that RL on images is about, what changes it, and the worst cases.
USUAL = {"model": "internvl", "trainer": "grpo", "group": 8, "tiles": 7, "completion": 32, "vision": "frozen"}
STUDY = [
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
]


def measure(name: str, shape: Shape, repeats: int, device: str) -> str:
    """One line of the table."""
    sides = pair(name, shape.tiles, shape.vision == "trained", device)
    probes = []
    with tempfile.TemporaryDirectory() as out:
        options = common(out, device, SIZES[name].dtype)
        for model, processing in sides:
            probes.append(Probe(TRAINERS[shape.trainer](model, processing, name, shape, options), processing))
        taken: list[list[dict[str, float]]] = [[], []]
        for turn in range(repeats + 2):
            for side, probe in enumerate(probes):
                # The first turn warms up. The last one weighs, as giving memory back costs time, and
                # compares, so the policy gets what stock sampled: rounding may tip a draw.
                probe.weigh = turn == repeats + 1
                probe.replay = probes[0].sampled if probe.weigh and side else None
                _forget(probe)
                probe.trainer.train()
                if 0 < turn <= repeats:
                    taken[side].append(dict(probe.seconds))
    return _line(name, shape, probes, taken, sides[1][0].get_base_model())


def _forget(probe: Probe) -> None:
    """No step may live on the pixels and features of the one before."""
    model = probe.trainer.accelerator.unwrap_model(probe.trainer.model).get_base_model()
    if isinstance(model, VLMPolicy):
        model.base_model.feature_cache.clear()
        model.processing_class.state.processed.clear()


def _line(name: str, shape: Shape, probes: list[Probe], taken: list, policy: VLMPolicy) -> str:
    def ratio(*phases: str) -> str:
        stock, ours = (
            statistics.median(sum(turn.get(p, 0) for p in phases) for turn in side) for side in taken
        )
        return f"{stock / ours:.2f}" if ours > 1e-4 else "-"

    stock, ours = probes
    report = policy.sharing_report()
    tokens = report["tokens"] / report["tokens_computed"] if report["tokens"] else 1.0
    differences = (
        (stock.logits.log_softmax(-1) - ours.logits.log_softmax(-1)).abs().max(),
        abs(stock.loss - ours.loss),
        (stock.gradients - ours.gradients).abs().max() / stock.gradients.abs().max(),
    )
    prompt = policy.processing_class.apply_chat_template(
        [_messages(name, shape)], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    cells = [name, shape.trainer, shape.group, shape.tiles, len(prompt["input_ids"][0]), shape.completion]
    cells += [shape.vision, f"{tokens:.2f}", *(ratio(phase) for phase in PHASES), f"**{ratio('step')}**"]
    cells += [ratio("log-probs", "backward"), f"{stock.peak / ours.peak:.2f}"]
    cells += [f"{difference:.0e}" for difference in differences]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = {"model": SIZES, "trainer": TRAINERS, "tiles": [0, *TILING], "vision": ["frozen", "trained"]}
    for name, usual in USUAL.items():
        parser.add_argument(f"--{name}", nargs="+", type=type(usual), choices=choices.get(name))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    given = vars(parser.parse_args())
    repeats, device = given.pop("repeats"), given.pop("device")
    machine = torch.cuda.get_device_name() if device == "cuda" else _processor()
    print(f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}, TRL {trl.__version__}\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for cell in _cells(given):
        print(measure(cell.pop("model"), Shape(**cell), repeats, device), flush=True)


def _cells(given: dict[str, list | None]) -> Iterator[dict[str, Any]]:
    """The study if nothing is given, else the product of what is given, the rest as usual."""
    if not any(given.values()):
        yield from (USUAL | changes for changes in STUDY)
        return
    axes = [given[name] or [usual] for name, usual in USUAL.items()]
    yield from (dict(zip(USUAL, values, strict=True)) for values in itertools.product(*axes))


def _processor() -> str:
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if "model name" in line), platform.machine())


if __name__ == "__main__":
    main()
