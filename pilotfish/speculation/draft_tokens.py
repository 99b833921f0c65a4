"""Drafting: the next draft token of every sequence of a drafter's step.

Shapes: R rows, one per sequence; V vocabulary; M = top_m candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pilotfish.speculation.results import DraftToken
from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.coupling import keys_of, pick_rows, rank_rows
from pilotfish.speculation.sampling.logits import process
from pilotfish.speculation.sampling.noise import Stream, gumbel
from pilotfish.speculation.sampling.penalties import Row, adjust
from pilotfish.speculation.sampling.rules import Rule, group
from pilotfish.types import SparseDistribution


def draft(logits: Tensor, rows: Sequence[Row], top_m: int, token_ids: Tensor | None = None) -> list[DraftToken]:
    """Choose one token per row from logits [R, V], never mutated, bfloat16 or float32.

    Greedy rows take the argmax and coupled rows the pick that shares its noise with the target.
    Rejection rows sample from their top_m likeliest tokens, renormalised and rounded to float32:
    exactly the pairs that travel, so that both sides hold the same draft distribution.
    token_ids: int64 [R, V], where the columns are each row's likeliest tokens, the likeliest first; rows
    then choose among these.
    Raises ValueError when the rows do not add up or penalties come without a history.
    """
    if logits.shape[0] != len(rows):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(rows)} drafts")
    if not rows:
        return []
    blocks = BlockedLogits.of(logits, token_ids)
    drafts: dict[int, DraftToken] = {}
    for key, members in group(row.sampling for row in rows).items():
        chosen = [rows[index] for index in members]
        drafts.update(zip(members, _draft_by(key.rule, blocks.select(members), chosen, top_m), strict=True))
    return [drafts[index] for index in range(len(rows))]


def _draft_by(rule: Rule, blocks: BlockedLogits, rows: Sequence[Row], top_m: int) -> list[DraftToken]:
    match rule:
        case Rule.GREEDY:
            return [DraftToken(token_id, None) for token_id in adjust(blocks, rows).argmax().tolist()]
        case Rule.COUPLED if blocks.token_ids is not None:
            token_ids, _ = rank_rows(process(blocks, rows), rows, 1)
            return [DraftToken(token_id, None) for (token_id,) in token_ids.tolist()]
        case Rule.COUPLED:
            token_ids = pick_rows(process(blocks, rows), rows, Stream.COUPLED)
            return [DraftToken(token_id, None) for token_id in token_ids.tolist()]
        case Rule.REJECTION:
            return _sample_top_m(blocks, rows, top_m)


def _sample_top_m(blocks: BlockedLogits, rows: Sequence[Row], top_m: int) -> list[DraftToken]:
    distribution = process(blocks, rows)
    logits, token_ids = distribution.blocks.rank(top_m)  # [R, M]
    probs = distribution.scores_of(logits, token_ids).softmax(-1).float()
    noise = gumbel(keys_of(rows, Stream.DRAFT, logits.device), token_ids)
    places = (probs.double().log_() + noise).argmax(-1).tolist()
    return [
        DraftToken(row_ids[place], _without_zeros(row_ids, row_probs))
        for place, row_ids, row_probs in zip(places, token_ids.tolist(), probs.tolist(), strict=True)
    ]


def _without_zeros(token_ids: list[int], probs: list[float]) -> SparseDistribution:
    """What was cut or is too small to travel is left out, wherever among equals it stands."""
    kept = [(token_id, prob) for token_id, prob in zip(token_ids, probs, strict=True) if prob > 0]
    return SparseDistribution(*zip(*kept, strict=True))
