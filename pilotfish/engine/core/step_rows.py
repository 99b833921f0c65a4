"""Rows of a step on their way to the decoder."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput


def build_step(scheduled: Sequence[ScheduledRows]) -> StepInput:
    """Rows of the sequences one after the other; logit rows are each complete sequence's last ones."""
    token_ids: list[int] = []
    positions: list[int] = []
    slices: list[SequenceSlice] = []
    logit_rows: list[int] = []
    for rows in scheduled:
        sequence = rows.sequence
        first_row, first_position = len(token_ids), rows.first_position
        end = first_position + rows.num_rows
        token_ids.extend(sequence.tokens[first_position:end])
        token_ids.extend(rows.drafts.token_ids[max(0, first_position - len(sequence.tokens)) :])
        slices.append(SequenceSlice(first_row, rows.num_rows, first_position, sequence.block_ids, rows.drafts.tree))
        positions.extend(slices[-1].positions())
        last = first_row + rows.num_rows
        logit_rows.extend(range(last - rows.num_logit_rows, last))
    return StepInput(token_ids, positions, slices, logit_rows)
