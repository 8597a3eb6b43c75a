"""The processor that every `generate` of a policy gets, and the processors that look at single rows."""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import LogitsProcessor
from transformers.generation import logits_process

from ..transfer import without_waiting


class NeverSample(LogitsProcessor):
    """Sets the scores of some tokens to -inf: a sampled placeholder would be read as an image."""

    def __init__(self, token_ids: Iterable[int]):
        self.token_ids = sorted(token_ids)
        self._index: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        """Scores of shape (B, V), with the columns of `token_ids` at -inf; ids from V on have none."""
        if self._index is None or self._index.device != scores.device:  # V is the same in all of a call
            known = [token for token in self.token_ids if token < scores.shape[-1]]
            self._index = without_waiting(torch.tensor(known, dtype=torch.long), scores.device)
        return scores.index_fill(-1, self._index, -torch.inf)


# Processors whose scores for a row depend on that row's ids and scores alone.
_OF_TRANSFORMERS = """
    EpsilonLogitsWarper EtaLogitsWarper ExponentialDecayLengthPenalty ForcedBOSTokenLogitsProcessor
    ForcedEOSTokenLogitsProcessor InfNanRemoveLogitsProcessor LogitNormalization
    MinLengthLogitsProcessor MinNewTokensLengthLogitsProcessor MinPLogitsWarper
    NoBadWordsLogitsProcessor NoRepeatNGramLogitsProcessor PrefixConstrainedLogitsProcessor
    RepetitionPenaltyLogitsProcessor SequenceBiasLogitsProcessor SuppressTokensAtBeginLogitsProcessor
    SuppressTokensLogitsProcessor TemperatureLogitsWarper TopHLogitsWarper TopKLogitsWarper
    TopPLogitsWarper TypicalLogitsWarper
""".split()  # noqa: SIM905
ROW_BY_ROW = (NeverSample, *(getattr(logits_process, name) for name in _OF_TRANSFORMERS))
