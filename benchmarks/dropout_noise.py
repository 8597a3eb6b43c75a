"""What shared prompts do to the noise of LoRA's dropout: mean and variance of the gradient, on and off.

`python -m benchmarks.dropout_noise` draws the gradient of one step of a group many times, with and without
sharing, on a tiny random Qwen2.5-VL in float32. Under sharing, all rows of a group have the prompt's dropout
masks in common. Each row's own gradient then still has the distribution of the stock model; what may change
is the variance of the sum over the rows. Two sums: weights of the rows that sum to zero, as the advantages of
GRPO's group do, and equal ones, as in SFT. Printed per setting:

    noise        root of the total variance of the stock gradient / length of its mean
    difference   length of the difference of the two means / that of the stock mean
    by chance    the difference expected if the true means are equal: two draws of the stock mean
    ratio        variance summed over the gradient's entries, shared / stock, with its standard error

"one row" is the gradient of one row of the group alone: the others run beside it with weight 0.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import write_checkpoint
from tests.images import photo

GROUP = 8
ADVANTAGES = torch.linspace(-1.5, 1.5, GROUP)
WEIGHTS = {
    "advantages": ADVANTAGES / ADVANTAGES.norm(),
    "equal": torch.ones(GROUP) / GROUP**0.5,
    "one row": torch.eye(GROUP)[0],
}
# Batches of draws, whose ratios give the ratio's standard error.
BATCHES = 8


def policy_with(
    dropout: float, family: str, words: int, tokens: int, std: float
) -> tuple[Any, dict[str, torch.Tensor]]:
    """A policy with a random adapter, and a batch of one prompt with `GROUP` completions of `tokens`."""
    with tempfile.TemporaryDirectory() as directory:
        policy = AutoVLMPolicy.from_pretrained(
            write_checkpoint(family, Path(directory)), dtype="float32", sharing=True
        )
    question = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it? " * words}]}
    ]
    processing = policy.processing_class
    text = processing.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    batch = dict(
        processing(text=[text] * GROUP, images=[[photo("cat", (112, 112))]] * GROUP, return_tensors="pt")
    )
    torch.manual_seed(0)
    peft = get_peft_model(policy, policy.lora_config(r=4, lora_dropout=dropout))
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:  # zero at first, which would leave lora_A without a gradient
            torch.nn.init.normal_(parameter, std=std)
    completion = torch.randint(5, 60, (GROUP, tokens))
    batch["input_ids"] = torch.cat([batch["input_ids"], completion], dim=1)
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    return peft.train(), batch


def gradient(peft: Any, batch: dict[str, torch.Tensor], weights: torch.Tensor, tokens: int) -> torch.Tensor:
    """One draw of the gradient of sum_i weights_i * log p(completion_i) / tokens, flat."""
    ids = batch["input_ids"]
    logits = peft(**batch, use_cache=False).logits[:, -tokens - 1 : -1]
    chosen = logits.log_softmax(-1).gather(-1, ids[:, -tokens:, None]).squeeze(-1)  # (B, tokens)
    parameters = [parameter for parameter in peft.parameters() if parameter.requires_grad]
    grads = torch.autograd.grad((chosen.mean(dim=1) * weights).sum(), parameters)
    return torch.cat([grad.flatten() for grad in grads])


def draws(
    peft: Any, batch: dict, weights: torch.Tensor, tokens: int, sharing: bool, number: int
) -> torch.Tensor:
    """(number, P) gradients, each with dropout masks of its own."""
    peft.get_base_model().base_model.sharing.mode = sharing
    torch.manual_seed(17 + sharing)
    return torch.stack([gradient(peft, batch, weights, tokens) for _ in range(number)])


def compare(stock: torch.Tensor, shared: torch.Tensor) -> dict[str, float]:
    """The figures of a line; both (N, P)."""
    number = len(stock)
    total = stock.var(dim=0).sum() + shared.var(dim=0).sum()
    scale = stock.mean(dim=0).norm()
    batches = [
        (part.var(dim=0).sum() / other.var(dim=0).sum()).item()
        for part, other in zip(shared.chunk(BATCHES), stock.chunk(BATCHES), strict=True)
    ]
    return {
        "difference": ((shared.mean(dim=0) - stock.mean(dim=0)).norm() / scale).item(),
        "by chance": ((total / number).sqrt() / scale).item(),
        "ratio": (shared.var(dim=0).sum() / stock.var(dim=0).sum()).item(),
        "error": statistics.stdev(batches) / BATCHES**0.5,
        "noise": (stock.var(dim=0).sum().sqrt() / scale).item(),
    }


def lines(options: argparse.Namespace) -> Iterator[str]:
    for dropout in options.dropout:
        tokens = options.completion
        peft, batch = policy_with(dropout, options.family, options.words, tokens, options.std)
        prompt = batch["input_ids"].shape[1] - tokens
        for name, weights in WEIGHTS.items():
            stock, shared = (
                draws(peft, batch, weights, tokens, sharing, options.draws) for sharing in (False, True)
            )
            figures = compare(stock, shared)
            yield (
                f"| {options.family} | {prompt} + {tokens} | {options.std} | {dropout} | {name} "
                f"| {figures['noise']:.2f} | {figures['difference']:.4f} | {figures['by chance']:.4f} "
                f"| {figures['ratio']:.2f} ± {figures['error']:.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--family", default="qwen2_5_vl")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--words", type=int, default=8, help="how often the prompt repeats its question")
    parser.add_argument("--completion", type=int, default=16, help="tokens of each completion")
    parser.add_argument("--std", type=float, default=0.05, help="of the random entries of lora_B")
    parser.add_argument("--draws", type=int, default=400, help="of each gradient")
    options = parser.parse_args()
    print(
        "| model | tokens | std | dropout | rows | noise / mean | difference | by chance | variance ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for line in lines(options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
