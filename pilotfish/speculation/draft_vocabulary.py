"""Draft vocabularies: the tokens of the target's vocabulary that a small head can propose.

Shapes: R rows, V vocabulary, V_d draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pilotfish.speculation.sampling.penalties import needs_adjustment
from pilotfish.types import SamplingParams


class DraftVocabulary:
    """Maps logits of a head to those of the whole vocabulary, where other tokens are impossible."""

    def __init__(self, token_ids: Tensor, vocab_size: int) -> None:
        """token_ids: int64 [V_d], distinct: the id of each of the head's tokens. All of them in order cost nothing."""
        self._token_ids = token_ids
        self._is_whole = torch.equal(token_ids.cpu(), torch.arange(vocab_size))
        self._columns = torch.zeros(vocab_size, dtype=torch.int64, device=token_ids.device)
        self._columns[token_ids] = torch.arange(len(token_ids), device=token_ids.device)
        self._logits = torch.empty(0, vocab_size, device=token_ids.device)

    def columns(self, token_ids: Tensor) -> Tensor:
        """Where the head's logits hold tokens that it drafted. int64 of any shape, as token_ids."""
        return self._columns[token_ids]

    def ranked(self, logits: Tensor, samplings: Iterable[SamplingParams]) -> tuple[Tensor, Tensor | None]:
        """What tokens are chosen from, for rows of logits [R, V_d]: the logits themselves and the target's id of each
        column. Where penalties, a bias or a grammar look at tokens by their ids: logits [R, V], -inf for tokens that
        are not drafted and overwritten by the next call, and None.
        """
        if self._is_whole:
            return logits, None
        if not any(map(needs_adjustment, samplings)):
            return logits, self._token_ids
        num_rows = logits.shape[0]
        if self._logits.shape[0] < num_rows:
            # Written once: each call replaces the same columns.
            self._logits = torch.full((num_rows, self._logits.shape[1]), -torch.inf, device=self._logits.device)
        spread = self._logits[:num_rows]
        spread.index_copy_(1, self._token_ids, logits.float())
        return spread, None
