"""How far `generate` is from what a model can do: tokens a second against a bare loop of stock's forward.

`python -m benchmarks.decoding` lets four ways take turns in one process, with the same weights and adapter:

- *bare*: stock's forward in a loop, on the cache that stock's prefill made, with the likeliest word and
  nothing else: what `generate` would reach if choosing words, stopping and arguments cost nothing;
- *bare, no prompt*: the same with one token in the cache: what is left where a prompt's keys cost nothing;
- *stock* and *policy*: `generate`, sampling as TRL's trainers do.

Tokens a second are those of decoding alone: what a `generate` of one token takes is subtracted. Processor
seconds on a CPU, medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import DynamicCache, GenerationConfig

from hf_vlm_rl.compat import CACHE

from .models import pair
from .rollouts import Shape, prompts
from .sizes import SIZES
from .trainers import processor_name

WAYS = ("bare", "bare, no prompt", "stock", "policy")
COLUMNS = (
    "model", "words", "rows", "prompt", "new tokens", *WAYS, "policy / bare", "policy / stock",
    "whole rollout, s: stock -> policy",
)  # fmt: skip


def seconds(work: Callable[[], Any], device: str) -> float:
    """What some work takes: of the processor on a CPU, of the clock on a GPU."""
    now = time.process_time
    if device == "cuda":
        torch.cuda.synchronize()
        now = time.perf_counter
    began = now()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return now() - began


def prefilled(model: Any, batch: dict[str, Any]) -> tuple[DynamicCache, torch.Tensor]:
    """Stock's cache behind a batch, and its likeliest next words (B, 1)."""
    cache = DynamicCache(config=model.get_base_model().config.get_text_config())
    output = model(**batch, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
    return cache, output.logits[:, -1:].argmax(-1)


def bare_loop(model: Any, cache: DynamicCache, words: torch.Tensor, steps: int) -> None:
    """Decode with nothing but forwards.

    Args:
        model: The stock model.
        cache: Of all rows, without padding.
        words: (B, 1) the words that come next.
        steps: How many forwards.
    """
    for _ in range(steps):
        output = model(input_ids=words, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
        words = output.logits[:, -1:].argmax(-1)


def sampling(model: Any, length: int) -> GenerationConfig:
    """As TRL's trainers sample, with rows of exactly so many tokens."""
    defaults = model.get_base_model().generation_config
    return GenerationConfig(
        max_new_tokens=length,
        min_new_tokens=length,
        do_sample=True,
        top_k=0,
        eos_token_id=defaults.eos_token_id,
        pad_token_id=defaults.pad_token_id,
    )


def turn(sides: dict[str, tuple[Any, dict[str, Any]]], length: int, device: str) -> dict[str, float]:
    """Seconds of decoding by each way, and of the whole `generate` ("stock, whole", "policy, whole")."""
    taken = {}
    stock, batch = sides["stock"]
    last = {name: batch[name][:, -1:] for name in ("input_ids", "attention_mask")}
    for way, inputs in (("bare", batch), ("bare, no prompt", last)):
        cache, words = prefilled(stock, inputs)
        taken[way] = seconds(lambda kept=(cache, words): bare_loop(stock, *kept, length - 1), device)
    for side, (model, inputs) in sides.items():
        whole = []
        for tokens in (length, 1):
            base = model.get_base_model()
            if side == "policy":
                base.base_model.feature_cache.clear()
            config = sampling(model, tokens)
            whole.append(
                seconds(lambda: model.generate(**inputs, generation_config=config), device)  # noqa: B023
            )
        taken[side], taken[f"{side}, whole"] = whole[0] - whole[1], whole[0]
    return taken


@torch.no_grad()
def measure(
    name: str, lengths: list[int], repeats: int, rows: int, tiles: int, words: int, device: str
) -> None:
    """Print a line for each length."""
    (stock, processor), (policy, processing) = pair(name, tiles, False, device, vocabulary=words)
    shape = Shape(model=name, rows=rows, group=rows, tiles=tiles)
    sides = {}
    for side, model, made in (("stock", stock, processor), ("policy", policy, processing)):
        model.eval()
        settings = model.get_base_model().generation_config
        settings.eos_token_id = processor.tokenizer.eos_token_id
        settings.pad_token_id = processor.tokenizer.pad_token_id
        sides[side] = model, {key: value.to(device) for key, value in prompts(made, shape).items()}
    prompt = sides["stock"][1]["input_ids"].shape[1]
    turn(sides, 8, device)  # warms up
    for length in lengths:
        turns = [turn(sides, length, device) for _ in range(repeats)]
        taken = {way: statistics.median(each[way] for each in turns) for way in turns[0]}
        rates = {way: rows * (length - 1) / taken[way] for way in WAYS}
        cells = [name, f"{words:,}", rows, prompt, length, *(f"{rates[way]:.0f}" for way in WAYS)]
        cells += [f"{rates['policy'] / rates['bare']:.2f}", f"**{rates['policy'] / rates['stock']:.2f}**"]
        cells += [f"{taken['stock, whole']:.2f} -> {taken['policy, whole']:.2f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SIZES, default="internvl")
    parser.add_argument("--lengths", nargs="+", type=int, default=[32, 128, 512])
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tiles", type=int, default=7)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    machine = torch.cuda.get_device_name() if given.device == "cuda" else processor_name()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{machine}, {torch.get_num_threads()} threads, {versions}; tokens a second\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    measure(
        given.model, given.lengths, given.repeats, given.rows, given.tiles, given.vocabulary, given.device
    )


if __name__ == "__main__":
    main()
