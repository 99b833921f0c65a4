"""The tokens that a drafter has in common with a target of another vocabulary: chosen by the target's ids, under which
both share their noise.

Shapes: R rows, D the drafter's vocabulary, V the target's, as far as anything of it is shared.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.speculation.results import DraftToken
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import SparseDistribution


class SharedVocabulary:
    """Logits in the target's ids, and what was chosen of them in the drafter's."""

    def __init__(self, drafter_ids: Sequence[int], target_ids: Sequence[int], device: torch.device) -> None:
        """target_ids: what each of drafter_ids stands for; distinct. Raises ValueError without any, or where the lists
        differ in length."""
        if not target_ids or len(set(target_ids)) != len(drafter_ids):
            raise ValueError(f"{len(drafter_ids)} tokens stand for {len(set(target_ids))} of the target's")
        self._drafter_ids = dict(zip(target_ids, drafter_ids, strict=True))
        size = max(target_ids) + 1
        self._columns = torch.tensor([self._drafter_ids.get(token_id, 0) for token_id in range(size)], device=device)
        lacks = [0.0 if token_id in self._drafter_ids else -torch.inf for token_id in range(size)]
        self._lacks = torch.tensor(lacks, device=device)

    def in_target_ids(self, logits: Tensor) -> Tensor:
        """[R, V] of the drafter's logits [R, D]; -inf for what it lacks."""
        return logits.index_select(1, self._columns).add_(self._lacks)

    def draft(self, drafted: DraftToken) -> DraftToken:
        """In the drafter's ids."""
        probs = drafted.probs
        if probs is not None:
            probs = SparseDistribution(tuple(self._drafter_ids[each] for each in probs.token_ids), probs.probs)
        return DraftToken(self._drafter_ids[drafted.token_id], probs)

    def candidates(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """In the drafter's ids."""
        return [Candidate(self._drafter_ids[each.token_id], each.log_prob) for each in candidates]
