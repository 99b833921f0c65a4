"""Rows of a step: how they go to the decoder, and which of them stay in the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.speculation.results import Outcome


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


class KeptRows(msgspec.Struct, frozen=True):
    """The rows of one sequence that a step has computed and kept."""

    sequence: EngineSequence
    """The sequence after the step: its last token is committed and not computed yet."""
    first_position: int
    step_rows: Sequence[int]
    """The row in the step of each position from first_position on, in the text's order; at least one. Rejected drafts
    have none, accepted ones that of their node."""
    last_logit_row: int | None
    """Place of the last kept row among the step's logit rows; None when its logits were not wanted."""

    @property
    def end_position(self) -> int:
        """Position behind the last of them."""
        return self.first_position + len(self.step_rows)


def kept_rows(scheduled: Sequence[ScheduledRows], outcomes: Mapping[int, Outcome]) -> list[KeptRows]:
    """Call it when the step is committed. outcomes: by sequence id, of those that reached the end of their task."""
    kept: list[KeptRows] = []
    first_row = first_logit_row = 0
    for rows in scheduled:
        num_committed = rows.num_rows - max(0, rows.num_logit_rows - 1)
        num_kept = rows.sequence.num_computed_tokens - rows.first_position
        outcome = outcomes.get(rows.sequence.sequence_id)
        path = () if outcome is None else outcome.path[: num_kept - num_committed]
        step_rows = [*range(first_row, first_row + num_committed), *(first_row + num_committed + node for node in path)]
        first_row += rows.num_rows
        # The logit rows are the last ones of the sequence's rows.
        last = first_logit_row + step_rows[-1] - (first_row - rows.num_logit_rows) if rows.is_complete else None
        first_logit_row += rows.num_logit_rows
        kept.append(KeptRows(rows.sequence, rows.first_position, step_rows, last))
    return kept
