"""The head on the last tokens of all rows: on a slice, as stock takes them, and on a copy, as a policy does.

`python -m benchmarks.kept_logits` prints how many times as long the slice takes as the copy, on one thread,
with a frozen head as LoRA leaves it: alone, and with the gradients of the hidden states.
"""

import statistics
from timeit import timeit

import torch

ROWS, TOKENS, KEPT, WIDTH, WORDS = 128, 64, 9, 576, 49_154
ROUNDS = 5


def main() -> None:
    """Time both in turns, and print the median ratio."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    states = torch.randn(ROWS, TOKENS, WIDTH, requires_grad=True)
    head = torch.nn.Linear(WIDTH, WORDS, bias=False).requires_grad_(False)
    places = torch.arange(TOKENS - KEPT, TOKENS)
    ways = {"slice": slice(-KEPT, None), "copy": places}

    def values(way: str) -> torch.Tensor:
        with torch.no_grad():
            return head(states[:, ways[way]])

    def gradients(way: str) -> torch.Tensor:
        return torch.autograd.grad(head(states[:, ways[way]]).logsumexp(-1).sum(), states)[0]

    for name, run in {"values": values, "values and gradients": gradients}.items():
        ratios = []
        for _ in range(ROUNDS):
            once = {way: timeit(lambda run=run, way=way: run(way), number=1) for way in ways}
            ratios.append(once["slice"] / once["copy"])
        print(f"{name}: the slice takes {statistics.median(ratios):.1f} times as long as the copy")


if __name__ == "__main__":
    main()
