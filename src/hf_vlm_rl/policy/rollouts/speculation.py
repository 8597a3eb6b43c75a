"""Several tokens of a row in one forward: those that completions of its prompt went on with before.

Each token is sampled from the model's own scores behind the tokens that were sampled before it, with the
random numbers that transformers' loop would have drawn for it. A draft only says where to have scores ready:
it is right where it is what was sampled. So drafts change neither the distribution nor a seed's samples.

Shapes: B rows, b of them still in the cache, n tokens of a row in a forward, V words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import EosTokenCriteria, MaxLengthCriteria

from .columns import Columns
from .drafts import Continuations
from .sampling import Sampler

# A forward costs as much as so many tokens, beside what its tokens cost: weights are read once for all.
FORWARD = {"cpu": 24}
FORWARD_ELSEWHERE = 200

# Drafts go on while the chance that they are right up to there is as large.
LEAST_CHANCE = 0.1


class Done(Exception):
    """Carries finished rows out of transformers' loop.

    Args:
        sequences: (B, P + L) ids, prompts included.
    """

    def __init__(self, sequences: torch.Tensor):
        super().__init__("All rows are finished.")
        self.sequences = sequences


@dataclass
class Row:
    """A row that is sampled.

    Attributes:
        number: Its number in the batch.
        past: What followed which tokens in completions of its prompt, its own among them.
        tokens: What was sampled.
        ended: Whether it is finished.
        draft: Tokens that may come next.
        chances: Of each, that it is right if those before it are.
        inputs: Tokens of the next forward: the last one and its draft; none while it waits for slower rows.
        seen: How many of them are no wrong drafts.
    """

    number: int
    past: Continuations
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    draft: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    seen: int = 0


class Speculation:
    """The rest of one `generate`, from its second token on.

    Args:
        policy: The policy.
        kwargs: The arguments of transformers' loop; `refusals.refusal` has nothing against them.
        keys: What tells the prompts of the B rows apart.
    """

    def __init__(self, policy: Any, kwargs: Mapping[str, Any], keys: Sequence[bytes]):
        self._account, self._keys = policy.base_model.rollouts, keys
        config, prompts = kwargs["generation_config"], kwargs["input_ids"]
        self._sampler = Sampler(kwargs["logits_processor"], config.do_sample, prompts)
        criteria = kwargs["stopping_criteria"]
        ends = [each.eos_token_id.flatten().tolist() for each in criteria if type(each) is EosTokenCriteria]
        lengths = [each.max_length for each in criteria if type(each) is MaxLengthCriteria]
        self._ends = [token for tokens in ends for token in tokens]
        self._longest = min(lengths) - prompts.shape[1]
        # Transformers' own choice where there is none.
        self._padding = self._ends[0] if config.pad_token_id is None else config.pad_token_id
        self._forward = FORWARD.get(prompts.device.type, FORWARD_ELSEWHERE)  # in tokens
        # Drafted tokens that were right, and how many should have been by their chances.
        self._right = self._expected = 2.0

    def run(
        self, forward: Callable[[dict[str, Any]], Any], step: dict[str, Any], ids: torch.Tensor
    ) -> torch.Tensor:
        """Sample all rows to their ends.

        Args:
            forward: The policy's forward, for any rows.
            step: Its arguments for the first step of decoding; `refusals.refusal_of_step` has nothing
                against them.
            ids: (B, P + 1) prompts and first tokens.

        Returns:
            (B, P + L) with padding behind the end of a row.
        """
        account, device = self._account, ids.device
        past = {key: Continuations(account.completions.of(key)) for key in set(self._keys)}
        every = [Row(number, past[key]) for number, key in enumerate(self._keys)]
        for row, token in zip(every, ids[:, -1].tolist(), strict=True):
            self._take(row, token)
        columns = Columns(step, ids.shape[1] - 1)
        rows, forwards = every, 0
        while left := [place for place, row in enumerate(rows) if not row.ended]:
            if len(left) < len(rows):
                rows = [rows[place] for place in left]
                columns.choose_rows(torch.tensor(left, device=device))
            self._propose(rows)
            logits = columns.forward(forward, [row.tokens for row in rows], [row.inputs for row in rows])
            self._verify(rows, logits)
            columns.keep([row.seen for row in rows], max(len(row.tokens) for row in rows) - 1)
            forwards += 1
            account.steps_run += len(rows)
        longest = max(len(row.tokens) for row in every)
        account.steps += (longest - 1) * len(every)
        account.forwards_saved += longest - 1 - forwards
        for key in past:
            account.completions.add(key, [row.tokens for row in every if row.past is past[key]])
        padded = [row.tokens + [self._padding] * (longest - len(row.tokens)) for row in every]
        return torch.cat([ids[:, :-1], ids.new_tensor(padded)], dim=1)

    def _take(self, row: Row, token: int) -> None:
        row.past.add(row.tokens, token)
        row.tokens.append(token)
        row.ended = token in self._ends or len(row.tokens) >= self._longest

    def _propose(self, rows: Sequence[Row]) -> None:
        """Say what each row brings to the next forward."""
        trust = min(1.0, self._right / self._expected)
        slowest = min(len(row.tokens) for row in rows)
        depths = [0.0] * self._account.most_drafts
        for row in rows:
            ahead = self._sampler.reach - (len(row.tokens) - slowest)
            most = min(len(depths), self._longest - len(row.tokens) - 1, ahead - 1)
            found = row.past.draft(row.tokens, most, LEAST_CHANCE) if trust > LEAST_CHANCE else []
            row.draft, row.chances = [token for token, _ in found], [chance for _, chance in found]
            row.inputs = row.tokens[-1:] if ahead > 0 else []
            right = 1.0
            for depth, chance in enumerate(row.chances):
                right *= trust * chance
                depths[depth] += right
        width = self._width(depths, len(rows))
        for row in rows:
            row.draft = row.draft[:width]
            row.inputs = row.inputs + row.draft
            self._account.drafts += len(row.draft)

    def _width(self, depths: Sequence[float], rows: int) -> int:
        """How long drafts may be, for the most tokens that are taken at what the forward costs.

        Args:
            depths: For each place in a draft, the number of rows that will take its token, by their chances.
            rows: b.
        """
        taken, best, width = float(rows), rows / (self._forward + rows), 0
        for place, more in enumerate(depths, start=1):
            taken += more
            speed = taken / (self._forward + rows * (1 + place))
            if speed > best:
                best, width = speed, place
        return width

    def _verify(self, rows: Sequence[Row], logits: torch.Tensor) -> None:
        """Sample each row's tokens, up to the first that is not its draft's.

        Args:
            rows: Those in the cache.
            logits: (b, n, V).
        """
        places = [place for place, row in enumerate(rows) if row.inputs]
        for row in rows:
            row.seen = min(1, len(row.inputs))
        for column in range(logits.shape[1]):
            sampled = self._sampler.sample(
                logits[places, column],
                [rows[place].number for place in places],
                [len(rows[place].tokens) for place in places],
            )
            right = []
            for place, token in zip(places, sampled, strict=True):
                row = rows[place]
                self._take(row, token)
                if column < len(row.draft):
                    self._expected += row.chances[column]
                    if token == row.draft[column]:
                        row.seen += 1
                        right.append(place)
            self._right += len(right)
            self._account.drafts_accepted += len(right)
            places = [place for place in right if not rows[place].ended]
            if not places:
                break
        self._sampler.forget(min((len(row.tokens) for row in rows if not row.ended), default=self._longest))
