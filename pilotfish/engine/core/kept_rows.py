"""Which rows of a step stay in the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.speculation.rounds import Outcome


def kept_step_rows(scheduled: Sequence[ScheduledRows], outcomes: Mapping[int, Outcome]) -> list[list[int]]:
    """For each entry the rows of the step that hold its positions from first_position on, in the text's order.

    Call it when the step is committed: rejected drafts have no row, accepted ones that of their node.
    outcomes: by sequence id, of those that reached the end of their task.
    """
    kept: list[list[int]] = []
    first_row = 0
    for rows in scheduled:
        num_kept = rows.sequence.num_computed_tokens - rows.first_position
        num_committed = rows.num_rows - max(0, rows.num_logit_rows - 1)
        outcome = outcomes.get(rows.sequence.sequence_id)
        path = () if outcome is None else outcome.path[: num_kept - num_committed]
        nodes = (first_row + num_committed + node for node in path)
        kept.append([*range(first_row, first_row + num_committed), *nodes])
        first_row += rows.num_rows
    return kept
