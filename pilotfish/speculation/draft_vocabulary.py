"""Draft vocabularies: the tokens of the target's vocabulary that a small head can propose.

Shapes: R rows, V vocabulary, V_d draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor


class DraftVocabulary:
    """Maps logits of a head to those of the whole vocabulary, where other tokens are impossible."""

    def __init__(self, token_ids: Tensor, vocab_size: int) -> None:
        """token_ids: int64 [V_d], distinct: the id of each of the head's tokens. All of the vocabulary in its own
        order costs nothing."""
        self._token_ids = token_ids
        self._is_whole = torch.equal(token_ids.cpu(), torch.arange(vocab_size))
        self._logits = torch.empty(0, vocab_size, device=token_ids.device)

    def spread(self, logits: Tensor) -> Tensor:
        """float32 [R, V] of logits [R, V_d]: -inf for tokens that are not drafted. Overwritten by the next call."""
        if self._is_whole:
            return logits
        num_rows = logits.shape[0]
        if self._logits.shape[0] < num_rows:
            # Written once: each call replaces the same columns.
            self._logits = torch.full((num_rows, self._logits.shape[1]), -torch.inf, device=self._logits.device)
        spread = self._logits[:num_rows]
        spread.index_copy_(1, self._token_ids, logits.float())
        return spread
