"""A row's drafts that vLLM was not given: the rest of one that came too late, and one that nobody waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.messages import Proposal


class ShadowFate(NamedTuple):
    """What became of a draft that nobody waited for nor verified."""

    row_id: int
    num_tokens: int
    """Of the draft."""
    num_right: int
    """Those of them that vLLM committed by itself."""


NoteShadow = Callable[[ShadowFate], None]


class UnusedDrafts:
    """Of one row, the latest of either kind."""

    def __init__(self, row: CommittedRow, counters: ProposerCounters, note_shadow: NoteShadow) -> None:
        """note_shadow: told what became of each shadow once it is certain."""
        self._row = row
        self._counters = counters
        self._note_shadow = note_shadow
        self._late: Proposal | None = None
        self._shadow: Proposal | None = None

    @property
    def has_shadow(self) -> bool:
        """Whether tokens to come will say what a draft was worth."""
        return self._shadow is not None

    def keep_late(self, draft: Proposal) -> None:
        """Its step is over."""
        self._late = draft

    def keep_shadow(self, draft: Proposal | None) -> None:
        """The latest draft is one that nobody waited for; None: it is none."""
        self._shadow = draft

    def take_rest(self, num_tokens: int) -> tuple[int, ...]:
        """What is left of a draft that came too late, if vLLM has decoded its beginning by itself. Empty: nothing.

        vLLM verifies what comes next: a shadow's fate is not told any more.
        """
        late = self._late
        self.forget()
        rest = () if late is None else self._row.rest_of(late.base_length, late.draft_token_ids)[:num_tokens]
        self._counters.num_late_drafts += bool(rest)
        return rest

    def settle(self, row_id: int) -> None:
        """Whether the tokens that have come say what a shadow was worth."""
        shadow = self._shadow
        num_right = None if shadow is None else self._row.fate_of(shadow.base_length, shadow.draft_token_ids)
        if shadow is not None and num_right is not None:
            self._shadow = None
            self._counters.num_shadow_drafts += 1
            self._note_shadow(ShadowFate(row_id, len(shadow.draft_token_ids), num_right))

    def forget(self) -> None:
        """The replica that made them is left, or they are used up."""
        self._late = self._shadow = None
