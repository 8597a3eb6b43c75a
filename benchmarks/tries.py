"""What AsyncGRPOTrainer's tries cost a policy: tokens that its decoder computes, for each node of TRL's trie.

`python -m benchmarks.tries` folds samples as TRL 1.16 does and lays their paths out as a policy does. Nothing
is run: the layout says what is computed.
"""

import torch
from torch.nn.utils.rnn import pad_sequence
from trl.experimental.async_grpo.packing import TreeRow

from hf_vlm_rl.policy.sharing.layout import find_layout
from hf_vlm_rl.policy.sharing.share import WORTHWHILE

# Prompts of a micro-batch, samples of each, tokens: of a system prompt, of a prompt and of an answer.
SHAPES = {
    "one prompt, short answers": (1, 8, 0, 300, 64),
    "one prompt, long answers": (1, 8, 0, 300, 1024),
    "eight prompts": (8, 8, 0, 300, 128),
    "eight prompts behind one system prompt": (8, 8, 40, 300, 128),
    "samples without a common prompt": (8, 1, 40, 300, 128),
    "three turns of a tool": (4, 8, 40, 300, 64),
}


def samples(name: str, prompts: int, rows: int, system: int, prompt: int, answer: int) -> list[torch.Tensor]:
    """Ids of each sample; equal numbers are equal tokens. Answers differ in length by up to a half."""
    random = torch.Generator().manual_seed(0)

    def fresh(length: int) -> torch.Tensor:
        return torch.randint(1, 100_000, (length,), generator=random)

    begin, made = fresh(system), []
    for _ in range(prompts):
        heads = [torch.cat([begin, fresh(prompt)])]
        if name.startswith(
            "three"
        ):  # half of the rows part at each turn, at a call with an image of 150 tokens
            heads = [torch.cat([heads[0], fresh(150)]) for _ in range(2)]
            heads = [torch.cat([head, fresh(150)]) for head in heads for _ in range(2)]
        for row in range(rows):
            own = fresh(int(torch.randint(answer // 2, answer + 1, (), generator=random)))
            made.append(torch.cat([heads[row % len(heads)], own]))
    return made


def main() -> None:
    print("| micro-batch | samples | their tokens | nodes of the trie | computed | for each node |")
    print("|---|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        rows, trie = samples(name, *shape), TreeRow()
        for ids in rows:
            trie.add({"input_ids": ids, "completion_mask": torch.zeros(1), "group_id": 0})
        keys = pad_sequence(rows, batch_first=True, padding_value=0)
        layout = find_layout(keys, keys > 0)
        computed = layout.computed if layout.saved >= WORTHWHILE else keys.numel()
        cells = (name, len(rows), sum(map(len, rows)), len(trie.tokens), computed)
        print(f"| {' | '.join(map(str, cells))} | {computed / len(trie.tokens):.2f} |")


if __name__ == "__main__":
    main()
