"""Draft vocabularies: the tokens of the target's vocabulary that a small head can propose.

Shapes: R rows, V vocabulary, V_d draft vocabulary, L likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pilotfish.speculation.sampling.penalties import needs_adjustment
from pilotfish.types import SamplingParams

_NUM_LIKELIEST = 32


class DraftVocabulary:
    """Maps logits of a head to tokens of the target's vocabulary; those that the head does not know are impossible."""

    def __init__(self, token_ids: Tensor, vocab_size: int, *, top_m: int = _NUM_LIKELIEST) -> None:
        """token_ids: int64 [V_d], distinct: the id of each of the head's tokens. All of them in order cost nothing.

        top_m: tokens of a row that a draft may be drawn from.
        """
        self._token_ids = token_ids
        self._is_whole = torch.equal(token_ids.cpu(), torch.arange(vocab_size))
        self._num_likeliest = min(max(top_m, _NUM_LIKELIEST), len(token_ids))
        self._logits = torch.empty(0, vocab_size, device=token_ids.device)

    def ranked(self, logits: Tensor, samplings: Iterable[SamplingParams]) -> tuple[Tensor, Tensor | None]:
        """What tokens are chosen from, for rows of logits [R, V_d]: the greatest logits of each row, descending, and
        their tokens' ids, both [R, L] and on the CPU. Where penalties, a bias or a grammar look at tokens by their
        ids: logits [R, V], -inf for tokens that are not drafted and overwritten by the next call, and None.
        """
        if self._is_whole:
            return logits, None
        if not any(map(needs_adjustment, samplings)):
            values, columns = logits.topk(self._num_likeliest)
            token_ids = self._token_ids.take(columns)  # launched before the copies wait
            # On the host: what is left is so little that launching it on a GPU takes longer than computing it.
            return values.cpu(), token_ids.cpu()
        num_rows = logits.shape[0]
        if self._logits.shape[0] < num_rows:
            # Written once: each call replaces the same columns.
            self._logits = torch.full((num_rows, self._logits.shape[1]), -torch.inf, device=self._logits.device)
        spread = self._logits[:num_rows]
        spread.index_copy_(1, self._token_ids, logits.float())
        return spread, None
