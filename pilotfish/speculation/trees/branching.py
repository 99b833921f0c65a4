"""Branching: the likeliest next tokens of every node that a draft tree expands.

Candidates are chosen, not drawn: in rejection mode each is proposed with certainty (a one-hot draft
distribution), so that a tree may be pruned by what it holds and stays exact (as in EAGLE-2's code).

Shapes: R rows, one per node; V vocabulary; C candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.coupling import rank_rows
from pilotfish.speculation.sampling.logits import process
from pilotfish.speculation.sampling.penalties import Row, adjust
from pilotfish.speculation.sampling.rules import Rule, group
from pilotfish.speculation.trees.growth import Candidate


def branch(logits: Tensor, rows: Sequence[Row], width: int, token_ids: Tensor | None = None) -> list[list[Candidate]]:
    """Candidates for each row of logits [R, V], at most width, the likeliest first; what is cut is none.

    Greedy rows take the greatest logits. Coupled rows take the greatest of logit and the noise that is
    shared with the target, so the first is the drafter's own pick. Rejection rows take the greatest
    probabilities. token_ids: as in drafting.draft.
    Raises ValueError when the rows do not add up or penalties come without a history.
    """
    if logits.shape[0] != len(rows):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(rows)} nodes")
    candidates: list[list[Candidate]] = [[]] * len(rows)
    if not rows:
        return candidates
    blocks = BlockedLogits.of(logits, token_ids)
    for key, members in group(row.sampling for row in rows).items():
        chosen = [rows[index] for index in members]
        ranked_ids, log_probs = _rank(key.rule, blocks.select(members), chosen, width)
        for index, ids, values in zip(members, ranked_ids.tolist(), log_probs.tolist(), strict=True):
            candidates[index] = [
                Candidate(token_id, value) for token_id, value in zip(ids, values, strict=True) if value > -math.inf
            ]
    return candidates


def _rank(rule: Rule, blocks: BlockedLogits, rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Token ids and log-probabilities [R, C], descending."""
    match rule:
        case Rule.GREEDY:
            blocks = adjust(blocks, rows)
            logits, token_ids = blocks.rank(width)
            return token_ids, logits - blocks.logits.logsumexp(-1, keepdim=True)  # each row by itself, whatever R is
        case Rule.COUPLED:
            return rank_rows(process(blocks, rows), rows, width)
        case Rule.REJECTION:
            distribution = process(blocks, rows)
            logits, token_ids = distribution.blocks.rank(width)
            return token_ids, distribution.scores_of(logits, token_ids) - distribution.log_norm()
