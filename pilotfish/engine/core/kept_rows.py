"""Rows of a step that stay in the cache. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.speculation.results import Outcome


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
