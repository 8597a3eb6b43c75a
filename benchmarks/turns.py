"""What is shared of conversations with tools: their tree, against one prefix for all rows.

`python -m benchmarks.turns` runs eight conversations about one prompt, which part at different turns of up to
three, through small decoders with LoRA adapters, forward and backward, in turns: rows by themselves, with one
prefix for each group of rows, and as a tree.
"""

import argparse
import math
import platform

import torch
from torch.nn.utils.rnn import pad_sequence

from hf_vlm_rl.policy.sharing.layout import LAYOUT, find_layout

from .ways import DECODERS, WIDTH, Step, compared, make_decoder, run

# What each row asks its tool for, turn by turn; equal letters at equal places are equal calls and images.
CONVERSATIONS = ("ac", "ac", "ac", "ad", "ad", "be", "be", "b")


def conversations(prompt: int, turn: int, answer: int) -> list[torch.Tensor]:
    """The keys of each row: prompt, calls with their images, and an answer of its own."""
    return [
        torch.cat(
            [
                torch.arange(prompt),
                *(1000 * ord(letter) + torch.arange(turn) for letter in asked),
                10**6 * (row + 1) + torch.arange(answer),
            ]
        )
        for row, asked in enumerate(CONVERSATIONS)
    ]


def measure(name: str, prompt: int, turn: int, answer: int, repeats: int) -> list[str]:
    """Lines of the table for one decoder."""
    rows = conversations(prompt, turn, answer)
    keys = pad_sequence(rows, batch_first=True, padding_value=-1)
    mask = keys >= 0
    _, numbers = torch.unique(keys, return_inverse=True)
    table = torch.randn(int(numbers.max()) + 1, WIDTH, generator=torch.Generator().manual_seed(0)) * 0.1
    batch = {"attention_mask": mask.long(), "use_cache": False}
    batch["inputs_embeds"] = table[numbers].requires_grad_()
    layouts = {"one prefix": find_layout(keys, mask, toll=math.inf), "tree": find_layout(keys, mask)}
    decoder = make_decoder(name)
    steps: dict[str, list[Step]] = {way: [] for way in ("stock", *layouts)}
    for _ in range(repeats + 1):
        steps["stock"].append(run(decoder, batch, prompt))
        for way, layout in layouts.items():
            steps[way].append(run(decoder, batch | {LAYOUT: layout}, prompt))
    least = mask.numel() / layouts["tree"].computed
    lines = []
    for way, layout in layouts.items():
        ratio, differences = compared(steps["stock"], steps[way])
        cells = (
            name, way, str(layout.computed), f"{mask.numel() / layout.computed:.2f}", f"{ratio:.2f}",
            f"{ratio / least:.2f}", *differences,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decoders", nargs="+", choices=DECODERS, default=list(DECODERS))
    parser.add_argument("--prompt", type=int, default=300)
    parser.add_argument("--turn", type=int, default=150)
    parser.add_argument("--answer", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, torch {torch.__version__}, 1 thread; prompt {options.prompt}, ", end="")
    print(f"turns {options.turn}, answer {options.answer}, {options.repeats} repeats\n")
    print("| decoder | way | tokens | token ratio | speed | of the tree's ratio | hidden | gradients |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.decoders:
        shape = (options.prompt, options.turn, options.answer, options.repeats)
        print("\n".join(measure(name, *shape)), flush=True)


if __name__ == "__main__":
    main()
