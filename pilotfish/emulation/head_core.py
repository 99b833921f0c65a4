"""An emulated head in the draft service: what it does otherwise than a draft model, as HeadCore does.

It reads nothing before features have come, which is with a proposal. It keeps no keys and values of what was drafted
ahead: those of committed tokens come from features. So drafting ahead takes it K + 2 steps, where a model takes K + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.drafter import Acceptance, EmulatedDrafter
from pilotfish.engine.core.drafted import Drafted
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask, ProposeTask, Status
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.messages import EngineCommand, Event, Opened, OpenSequence, Propose


class EmulatedHeadCore(EmulatedCore):
    """See the module and EmulatedCore."""

    def __init__(
        self, *arguments: Any, acceptance_ahead: Acceptance = (), drafts_ahead: bool = True, **options: Any
    ) -> None:
        """acceptance_ahead: of drafts made ahead, from the head's own states; empty: as the others'."""
        super().__init__(*arguments, **options | {"prefix_caching": False, "moves_kv": False})
        self._drafts_ahead = drafts_ahead
        self._ahead = self.drafter
        if acceptance_ahead != ():
            self._ahead = EmulatedDrafter(self.drafter.language_model, acceptance_ahead)

    def _open(self, command: OpenSequence) -> Event | None:
        answer = super()._open(command)
        if answer is None:
            sequence = self._sequences[command.sequence_id]
            sequence.is_preempted = sequence.is_opened = True  # from now on it computes only what a task asks for
            return Opened(command.sequence_id, 0)
        return answer

    def _take(self, command: EngineCommand, now_ns: int) -> Event | None:
        answer = super()._take(command, now_ns)
        sequence = self._sequences.get(command.sequence_id)
        if isinstance(command, Propose) and sequence is not None and command.features is not None:
            # The head's text begins where its features do.
            first = max(sequence.num_computed_tokens, command.features.first_position)
            sequence.num_computed_tokens = min(first, len(sequence.tokens) - 1)
            if not self._drafts_ahead and sequence.proposing is not None:
                sequence.proposing.ahead = None
        return answer

    def _run(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> Iterator[Event]:
        events = list(super()._run(scheduled, start_ns))
        for rows in scheduled:
            if rows.status is Status.PROPOSING and isinstance(rows.sequence.task, PredraftTask):
                # The state after the last token is not kept.
                self.kv_cache.recompute_from(rows.sequence, len(rows.sequence.tokens) - 1)
        return iter(events)

    def _is_free(self, num_rows: int, num_more: int) -> bool:
        del num_rows, num_more
        return False  # in one step it drafts, or drafts ahead

    def _drafted(self, sequence: EngineSequence) -> Drafted:
        drafted = super()._drafted(sequence)
        if isinstance(sequence.task, ProposeTask) and not isinstance(sequence.task.growth, TreeProposal):
            # What else it thinks of is seen in the step that goes through the drafts again.
            return Drafted(drafted.drafts)
        return drafted

    def _drafter_of(self, sequence: EngineSequence) -> EmulatedDrafter:
        return self._ahead if isinstance(sequence.task, PredraftTask) else super()._drafter_of(sequence)
