"""Exact match: the rule of greedy and of coupled verification.

The target's own choice is the one emitted at each position; drafts only save steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.speculation.blocks import BlockedLogits
from pilotfish.speculation.penalties import Row, adjust


def choose(blocks: BlockedLogits, rows: Sequence[Row]) -> list[int]:
    """The target's argmax of each row after penalties and bias, the lowest id among equals.

    An argmax, never a comparison of probabilities: rounding in a softmax can make two tokens equal.
    """
    return adjust(blocks, rows).argmax().tolist()


def num_matching(draft_token_ids: Sequence[int], target_token_ids: Sequence[int]) -> int:
    """Leading drafts that equal the target's choices."""
    for index, token_id in enumerate(draft_token_ids):
        if token_id != target_token_ids[index]:
            return index
    return len(draft_token_ids)
