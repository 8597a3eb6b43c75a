"""`generate` in a first and a second epoch, with and without drafts of earlier completions.

`python -m benchmarks.drafts` lets three sides take turns in one process: the stock model, the policy, and
the policy with `speculation=True`, on the same weights and seeds. "repeat": the model was trained on a few
answers to each prompt, and samples them at temperature 1; "random": weights as they were drawn, so that
nothing repeats. The second epoch has the first one's prompts and another seed. Figures are medians; "same"
counts the epochs in which all three sampled the same tokens.
"""

import argparse
import random
import statistics
import time
from typing import Any

import torch
import transformers
from transformers import GenerationConfig

from .models import policy_of, stock
from .rollouts import Shape, prompts
from .trainers import processor_name

COLUMNS = [
    "model", "weights", "rows", "prompts", "prompt", "completion", "epoch", "stock s", "policy s", "drafts s",
    "stock / drafts", "**policy / drafts**", "accepted", "forwards saved", "same",
]  # fmt: skip
ANSWERS = 4
ENDING = 3


def answers(words: int, longest: int, number: int) -> list[list[int]]:
    """Answers to a prompt, of different lengths and alike in nine tokens of ten."""
    draws = random.Random(number)
    common = [draws.randrange(20, words) for _ in range(longest)]
    told = []
    for _ in range(ANSWERS):
        length = draws.randrange(longest // 2, longest)
        told.append([draws.choice(common) if draws.random() < 0.1 else token for token in common[:length]])
    return told


def train(policy: Any, shape: Shape, steps: int) -> float:
    """Teach a policy a few answers to each prompt; returns the last loss."""
    count, end = shape.rows // shape.group, policy.generation_config.eos_token_id
    batch = prompts(policy.processing_class, Shape(shape.model, count * ANSWERS, ANSWERS, shape.tiles))
    words = min(policy.config.get_text_config().vocab_size, *policy.placeholder_ids)
    told = [each for number in range(count) for each in answers(words, shape.longest, number)]
    rows = torch.tensor([each + [end] + [-100] * (shape.longest - len(each)) for each in told])
    labels = torch.cat([torch.full_like(batch["input_ids"], -100), rows], dim=1)
    batch["input_ids"] = torch.cat([batch["input_ids"], rows.clamp(min=ENDING)], dim=1)
    batch["attention_mask"] = torch.cat([batch["attention_mask"], (rows >= 0).long()], dim=1)
    policy.train().base_model.get_submodule(policy.base_model.decoder_name).requires_grad_(True)
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-3, weight_decay=0.0)
    for _ in range(steps):
        loss = policy(**batch, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    policy.eval()
    return float(loss)


def rollout(model: Any, batch: dict[str, Any], config: GenerationConfig, seed: int) -> tuple[float, Any]:
    """Seconds of one `generate`, and what it sampled."""
    if hasattr(model, "sharing_report"):
        model.base_model.feature_cache.clear()
    torch.manual_seed(seed)
    start = time.perf_counter()
    sampled = model.generate(**batch, generation_config=config)
    if sampled.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start, sampled


def measure(shape: Shape, steps: int, repeats: int, device: str) -> list[str]:
    """Two lines of the table, one an epoch; `steps` of training, 0 for random weights."""
    model, processor = stock(shape.model, shape.tiles, device)
    end = processor.tokenizer.eos_token_id
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = ENDING
    policy = policy_of(model, processor)
    if steps:
        print(f"loss {train(policy, shape, steps):.3f} after {steps} steps", flush=True)
        model.load_state_dict(policy.state_dict())
    model.eval()
    never = [*policy.placeholder_ids, *([] if steps else [end])]
    config = GenerationConfig(
        max_new_tokens=shape.longest + 1,
        do_sample=True,
        top_k=0,
        eos_token_id=end,
        pad_token_id=ENDING,
        suppress_tokens=sorted(set(never)),
    )
    made = {
        who: {name: value.to(device) for name, value in prompts(processing, shape).items()}
        for who, processing in ((model, processor), (policy, policy.processing_class))
    }
    account = policy.base_model.rollouts
    sides = {"stock": (model, False), "policy": (policy, False), "drafts": (policy, True)}
    seconds: dict[tuple[int, str], list[float]] = {(e, s): [] for e in (0, 1) for s in sides}
    found: dict[int, list[tuple[int, int, int, bool]]] = {0: [], 1: []}
    for turn in range(repeats + 1):
        policy.base_model.renew()
        account = policy.base_model.rollouts
        for epoch in (0, 1):
            before, samples = (account.drafts, account.drafts_accepted, account.forwards_saved), []
            for side in sides if turn % 2 else reversed(sides):
                who, account.speculation = sides[side]
                taken, sampled = rollout(who, made[who], config, 2 * turn + epoch)
                samples.append(sampled)
                if turn:  # the first turn warms up
                    seconds[epoch, side].append(taken)
            after = (account.drafts, account.drafts_accepted, account.forwards_saved)
            drafts, right, saved = (new - old for new, old in zip(after, before, strict=True))
            if turn:
                found[epoch].append(
                    (drafts, right, saved, all(torch.equal(each, samples[0]) for each in samples))
                )
    lines = []
    width = made[model]["input_ids"].shape[1]
    for epoch in (0, 1):
        theirs, plain, ours = (statistics.median(seconds[epoch, side]) for side in sides)
        drafts, right, saved, same = (list(each) for each in zip(*found[epoch], strict=True))
        cells = [shape.model, "repeat" if steps else "random", shape.rows, shape.rows // shape.group, width]
        cells += [shape.longest, epoch + 1, f"{theirs:.2f}", f"{plain:.2f}", f"{ours:.2f}"]
        cells += [f"{theirs / ours:.2f}", f"**{plain / ours:.2f}**"]
        cells += [f"{sum(right) / sum(drafts):.0%}" if sum(drafts) else "-", statistics.median(saved)]
        cells += [f"{sum(same)}/{len(same)}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="internvl")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--longest", type=int, default=96)
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[80, 0], help="of training; 0: random weights"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    machine = torch.cuda.get_device_name() if given.device == "cuda" else processor_name()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{machine}, {torch.get_num_threads()} threads, {versions}\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for steps in given.steps:
        for rows in given.rows:
            shape = Shape(given.model, rows, rows // given.prompts, 1, given.longest, 1.0)
            print("\n".join(measure(shape, steps, given.repeats, given.device)), flush=True)


if __name__ == "__main__":
    main()
