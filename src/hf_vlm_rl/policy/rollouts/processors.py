"""The processor that every `generate` of a policy gets, and what processors look at."""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    LogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)


class NeverSample(LogitsProcessor):
    """Sets the scores of some tokens to -inf: a sampled placeholder would be read as an image.

    Args:
        token_ids: The tokens.
    """

    def __init__(self, token_ids: Iterable[int]):
        self.token_ids = sorted(token_ids)
        self._index: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        """Scores of shape (B, V), with the columns of `token_ids` at -inf; ids from V on have none."""
        if self._index is None or self._index.device != scores.device:  # the vocabulary stays for a call
            known = [token for token in self.token_ids if token < scores.shape[-1]]
            self._index = torch.tensor(known, dtype=torch.long, device=scores.device)
        return scores.index_fill(-1, self._index, -torch.inf)


# What they make of a row depends on that row's ids and scores alone.
ROW_BY_ROW = (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NeverSample,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

# What they make of scores depends on these alone, and not on the tokens before them.
TOKEN_BY_TOKEN = (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    MinPLogitsWarper,
    NeverSample,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)


def crosses_rows(processors: Iterable[LogitsProcessor]) -> str | None:
    """The name of a processor that may look at several rows at once; None if there is none."""
    return next((type(each).__name__ for each in processors if type(each) not in ROW_BY_ROW), None)


def looks_back(processors: Iterable[LogitsProcessor]) -> str | None:
    """The name of a processor that may look at the tokens before the next one; None if there is none."""
    return next((type(each).__name__ for each in processors if type(each) not in TOKEN_BY_TOKEN), None)
