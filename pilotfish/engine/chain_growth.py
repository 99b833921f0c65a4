"""Draft chains token by token, for several sequences at once, as far as the drafter trusts them.

Shapes: R sequences still drafting, V_d draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.engine.sequence import Drafts, EngineSequence
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.drafting import DraftRow, draft
from pilotfish.types import SparseDistribution

MIN_CONFIDENCE = 0.2
"""A chain ends when the target is less likely than this to accept all of it: about what one more draft token costs
(a tenth of a step) times the tokens that a step yields."""


@dataclass(frozen=True, slots=True)
class DraftWish:
    """Drafts wanted after a sequence's last token."""

    sequence: EngineSequence
    num_draft_tokens: int
    """At most; at least 1. The sequence's blocks have room for them."""
    first_position: int = 0
    """Of the token in the first slot of the drafter's blocks."""


class _Chain:
    """The draft of one sequence as it grows."""

    def __init__(self, wish: DraftWish) -> None:
        self.sequence = wish.sequence
        self.num_wanted = wish.num_draft_tokens
        self.token_ids: list[int] = []
        self.probs: list[SparseDistribution] = []
        self.confidence = 1.0

    @property
    def is_done(self) -> bool:
        return len(self.token_ids) >= self.num_wanted or self.confidence < MIN_CONFIDENCE

    def draft_row(self) -> DraftRow:
        position = len(self.sequence.tokens) + len(self.token_ids)
        return DraftRow(self.sequence.sampling, position, self.sequence.history)


NextLogits = Callable[[Sequence[int], Sequence[int], Sequence[int]], Tensor]
"""Logits float32 [R, V_d] of the next tokens, of the chains named in the first argument (indices of the wishes,
ascending), after their last draft tokens (second), at those tokens' positions (third)."""


def grow_chains(
    wishes: Sequence[DraftWish], logits: Tensor, next_logits: NextLogits, vocabulary: DraftVocabulary, *, top_m: int
) -> list[Drafts]:
    """A chain for each of the wishes.

    logits: float32 [len(wishes), V_d], what the drafter predicts after each sequence's last token.
    """
    chains = [_Chain(wish) for wish in wishes]
    active = list(range(len(chains)))
    try:
        while True:
            _extend([chains[index] for index in active], logits, vocabulary, top_m)
            active = [index for index in active if not chains[index].is_done]
            if not active:
                break
            growing = [chains[index] for index in active]
            last_token_ids = [chain.token_ids[-1] for chain in growing]
            positions = [len(chain.sequence.tokens) + len(chain.token_ids) - 1 for chain in growing]
            logits = next_logits(active, last_token_ids, positions)
    finally:
        for chain in chains:
            _forget_drafts(chain.sequence)
    return [Drafts(tuple(chain.token_ids), tuple(chain.probs)) for chain in chains]


def _extend(chains: Sequence[_Chain], logits: Tensor, vocabulary: DraftVocabulary, top_m: int) -> None:
    spread = vocabulary.spread(logits)
    drafts = draft(spread, [chain.draft_row() for chain in chains], top_m)
    chosen = torch.tensor([[drafted.token_id] for drafted in drafts], device=logits.device)
    confidences = (spread.gather(1, chosen) - logits.logsumexp(1, keepdim=True)).exp_().squeeze(1).tolist()
    for chain, drafted, confidence in zip(chains, drafts, confidences, strict=True):
        chain.token_ids.append(drafted.token_id)
        if drafted.probs is not None:
            chain.probs.append(drafted.probs)
        chain.confidence *= confidence
        if chain.sequence.history is not None:
            chain.sequence.history.append((drafted.token_id,))  # penalties count earlier drafts


def _forget_drafts(sequence: EngineSequence) -> None:
    if sequence.history is not None:
        sequence.history.truncate(len(sequence.tokens))
