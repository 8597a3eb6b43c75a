"""A cache whose rows have different numbers of tokens: what a row does not see is hidden by the mask.

Keys and values of wrong drafts stay in the cache until they are too many, or all rows hide a column.

Shapes: b rows in the cache, t of its columns, n new ones.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..sharing.prefix_cache import SharedPrompts
from .rows import choose_arguments, choose_cache, choose_columns

# Columns beyond those that the longest row sees: as a share of them, and beside it.
HIDDEN, FREE = 0.5, 32


class Columns:
    """The cache of one `generate` behind its prompts.

    Args:
        step: The arguments of the first step of decoding; they are those of later ones, but for the tokens,
            their positions and the mask.
        prompt: Tokens of the padded prompt.
    """

    def __init__(self, step: dict[str, Any], prompt: int):
        cache = step["past_key_values"]
        self._step, self._cache = step, cache
        mask = step.get("attention_mask")
        self._hidden = mask is not None  # whether a row may hide a column
        if mask is None:
            mask = torch.ones(len(step["input_ids"]), cache.get_seq_length() + 1, dtype=torch.long)
        self._mask = mask[:, :-1].to(step["input_ids"].device)  # (b, t)
        # Columns that are never moved, and how many of the prompt's are not among them.
        self._fixed = cache.prompt_tokens if isinstance(cache, SharedPrompts) else prompt
        self._moved = prompt - self._fixed
        self._new = 0  # columns of the latest forward

    def choose_rows(self, places: torch.Tensor) -> None:
        """Leave the other rows out."""
        choose_cache(self._cache, places)
        self._step = choose_arguments(self._step, places)
        self._mask = self._mask.index_select(0, places.to(self._mask.device))

    def forward(
        self,
        forward: Callable[[dict[str, Any]], Any],
        completions: Sequence[Sequence[int]],
        inputs: Sequence[Sequence[int]],
    ) -> torch.Tensor:
        """Run new tokens of each row.

        Args:
            forward: The policy's forward, for any rows.
            completions: What was sampled of each row; its last token is not in the cache.
            inputs: That token and what may follow it, or nothing.

        Returns:
            (b, n, V) logits, of filling behind the end of `inputs`.
        """
        device, most = self._mask.device, max(map(len, inputs))
        self._new = most
        filled = [
            [*new, *[done[-1]] * (most - len(new))] for new, done in zip(inputs, completions, strict=True)
        ]
        places = torch.arange(most, device=device)
        real = places < torch.tensor([[len(new)] for new in inputs], device=device)
        passed = places + torch.tensor([[len(done) - 1] for done in completions], device=device)
        self._mask = torch.cat([self._mask, real.to(self._mask.dtype)], dim=1)
        first = self._step["position_ids"]  # (b, 1), or (3 or 4, b, 1)
        changed: dict[str, Any] = {
            "input_ids": torch.tensor(filled, device=device),
            "attention_mask": self._mask,
            "position_ids": first + passed.to(first),
        }
        if most == 1 and not self._hidden:
            changed["attention_mask"] = None  # as in transformers' own steps
        if (types := self._step.get("mm_token_type_ids")) is not None:
            changed["mm_token_type_ids"] = types[:, -1:].expand(-1, most)
        if self._step.get("logits_to_keep"):
            changed["logits_to_keep"] = most
        return forward(self._step | changed).logits

    def keep(self, seen: Sequence[int], longest: int) -> None:
        """Hide what the latest forward had too much.

        Args:
            seen: How many of each row's new tokens to keep.
            longest: The most tokens behind the prompt that a row has in the cache then.
        """
        columns = torch.arange(self._new, device=self._mask.device)
        self._mask[:, -self._new :] = columns < torch.tensor([[each] for each in seen], device=columns.device)
        self._hidden |= min(seen) < max(seen)
        if hidden := self._new - max(seen):
            self._cache.crop(-hidden)
            self._mask = self._mask[:, :-hidden]
        own, most = self._mask[:, self._fixed :], longest + self._moved
        if own.shape[1] <= most * (1 + HIDDEN) + FREE:
            return
        columns = own.argsort(dim=1, stable=True)[:, -most:]  # those that are seen, in their order
        choose_columns(self._cache, columns, self._fixed)
        self._mask = torch.cat([self._mask[:, : self._fixed], own.gather(1, columns)], dim=1)
