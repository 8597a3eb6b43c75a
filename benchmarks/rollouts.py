"""`generate` of the stock model against `generate` of the policy, with completions of different lengths.

`python -m benchmarks.rollouts` lets the two take turns in one process, one rollout each, and prints per shape
the ratio stock / policy of the time. Both get ready inputs of their own kind, the same weights and seeds, and
end each row at a length that was set before. Figures are medians of the paired ratios; "same" counts the
rollouts that are equal, token by token.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import GenerationConfig

from .lengths import EndAt, lengths
from .models import image, pair
from .trainers import QUESTION, processor_name

COLUMNS = [
    "model", "rows", "prompts", "prompt", "completion", "longest / mean", "rollout", "least", "most", "same",
]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A rollout.

    Attributes:
        model: A name in `models.SIZES`.
        rows: Rows of the batch.
        group: Rows of one prompt.
        tiles: Tiles of the prompt's image; 0 for none.
        longest: Tokens of the longest completion.
        spread: Longest over mean length.
    """

    model: str = "internvl"
    rows: int = 8
    group: int = 8
    tiles: int = 7
    longest: int = 512
    spread: float = 4.0

    @property
    def lengths(self) -> torch.Tensor:
        """(rows,) tokens of each completion."""
        return lengths(self.rows, self.longest, self.spread)


STUDY = [
    Shape(),
    Shape(rows=32),
    Shape(model="qwen2_5_vl", rows=16),
    Shape(rows=16, group=1),
    Shape(rows=16, tiles=0),
    Shape(rows=16, spread=2.0),
    Shape(rows=32, longest=128),
    # Nothing to gain: every row is as long as the longest, and no prompt repeats.
    Shape(rows=8, group=1, tiles=0, longest=128, spread=1.0),
    Shape(rows=32, group=1, tiles=0, longest=128, spread=1.0),
    Shape(rows=2, group=1, tiles=1, longest=128, spread=1.0),
    Shape(rows=1, group=1, tiles=7, longest=128, spread=1.0),
]


def prompts(processing: Any, shape: Shape) -> dict[str, Any]:
    """The batch: rows / group prompts that differ in their text, each repeated."""
    pictures = image(shape.model, shape.tiles)
    rows = []
    for number in range(shape.rows // shape.group):
        content = [{"type": "image", "image": picture} for picture in pictures]
        text = {"type": "text", "text": QUESTION + " " + " ".join("abcdefgh"[number % 8] * (1 + number // 8))}
        rows += [[{"role": "user", "content": [*content, text]}]] * shape.group
    return processing.apply_chat_template(
        rows,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    )


def rollout(
    model: Any, batch: dict[str, Any], shape: Shape, never: list[int], seed: int
) -> tuple[float, Any]:
    """Seconds of one `generate`, and what it sampled."""
    base = model.get_base_model()
    if hasattr(base, "sharing_report"):
        base.base_model.feature_cache.clear()
    eos = base.generation_config.eos_token_id
    config = GenerationConfig(
        max_new_tokens=shape.longest,
        do_sample=True,
        top_k=0,
        eos_token_id=eos,
        pad_token_id=base.generation_config.pad_token_id,
        suppress_tokens=sorted({*never, *(eos if isinstance(eos, list) else [eos])}),
    )
    torch.manual_seed(seed)
    start = time.perf_counter()
    ends = EndAt(shape.lengths)
    sampled = model.generate(**batch, generation_config=config, stopping_criteria=[ends])
    if sampled.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start, sampled


def measure(shape: Shape, repeats: int, device: str) -> str:
    """One line of the table."""
    (stock, processor), (policy, processing) = pair(shape.model, shape.tiles, False, device)
    never = list(policy.get_base_model().placeholder_ids)
    sides = []
    for model, made in ((stock, processor), (policy, processing)):
        model.eval()
        base = model.get_base_model()
        tokenizer = processor.tokenizer
        base.generation_config.eos_token_id = tokenizer.eos_token_id
        base.generation_config.pad_token_id = tokenizer.pad_token_id
        batch = {name: value.to(device) for name, value in prompts(made, shape).items()}
        sides.append((model, batch))
    ratios, same = [], []
    for turn in range(repeats + 1):
        taken = []
        for model, batch in sides if turn % 2 else reversed(sides):
            taken.append((model is policy, *rollout(model, batch, shape, never, turn)))
        (_, theirs, expected), (_, ours, found) = sorted(taken, key=lambda each: each[0])
        if turn:  # the first turn warms up
            ratios.append(theirs / ours)
            same.append(bool(torch.equal(expected, found)))
    ids = sides[0][1]["input_ids"]
    spread = shape.longest / shape.lengths.float().mean()
    cells = [shape.model, shape.rows, shape.rows // shape.group, ids.shape[1], shape.longest, f"{spread:.1f}"]
    cells += [f"**{statistics.median(ratios):.2f}**", f"{min(ratios):.2f}", f"{max(ratios):.2f}"]
    cells += [f"{sum(same)}/{len(same)}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, kind in Shape.__annotations__.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    given = vars(parser.parse_args())
    repeats, device = given.pop("repeats"), given.pop("device")
    chosen = {name: value for name, value in given.items() if value is not None}
    machine = torch.cuda.get_device_name() if device == "cuda" else processor_name()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{machine}, {torch.get_num_threads()} threads, {versions}\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for shape in [Shape(**chosen)] if chosen else STUDY:
        print(measure(shape, repeats, device), flush=True)


if __name__ == "__main__":
    main()
