"""Drafts that a replica made ahead for one request, by the tokens that they assume to be committed."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.messages import PreparedDrafts, Proposal


@dataclass(slots=True)
class AheadCounters:
    """What drafting ahead came to, over all requests of an orchestrator."""

    num_hits: int = 0
    """Rounds whose draft was there before it was asked for."""
    num_misses: int = 0
    """Rounds after drafting ahead whose draft had to be asked for all the same."""
    num_late_hits: int = 0
    """Of the misses, those whose prepared draft came while it was being asked for."""
    num_prepared_tokens: int = 0
    num_wasted_tokens: int = 0
    """Of the prepared ones, those whose outcome did not come true."""
    num_stale_drafts: int = 0
    """That came after their round was over."""
    hidden_s: float = 0.0
    """Drafting time that nobody waited for: for each hit, what asking took of late."""


class SpeculationCache:
    """Holds the drafts of one round: those that stand on what the replica was last told.

    A prepared draft is found by the tokens that were committed since, whatever it contains: choosing by its
    content would change the distribution of the output.
    """

    def __init__(self, counters: AheadCounters) -> None:
        self._counters = counters
        self._prepared: list[PreparedDrafts] = []
        self._num_unused_tokens = 0
        self.base_length = 0
        """Committed tokens that the replica was last told of."""
        self.is_expecting = False
        """Whether it was asked to draft ahead of them."""

    def begin(self, base_length: int, *, is_expecting: bool) -> None:
        """The replica is told of base_length tokens: what stands on others is of no use any more."""
        self._counters.num_wasted_tokens += self._num_unused_tokens
        self._num_unused_tokens = 0
        self._prepared.clear()
        self.base_length, self.is_expecting = base_length, is_expecting

    def add(self, prepared: PreparedDrafts) -> None:
        """Keep what came unasked; drafts of an earlier round are dropped."""
        num_tokens = len(prepared.draft_token_ids)
        self._counters.num_prepared_tokens += num_tokens
        if not self.is_expecting or prepared.base_length != self.base_length:
            self._counters.num_stale_drafts += len(prepared.own_token_ids)
            self._counters.num_wasted_tokens += num_tokens
            return
        self._prepared.append(prepared)
        self._num_unused_tokens += num_tokens

    def take(self, committed_token_ids: tuple[int, ...]) -> Proposal | None:
        """The draft for just these tokens after base_length, and count a hit or a miss."""
        if not self.is_expecting:
            return None
        for prepared in self._prepared:
            draft = prepared.draft(committed_token_ids)
            if draft is not None:
                self._counters.num_hits += 1
                self._num_unused_tokens -= len(draft.draft_token_ids)
                return draft
        self._counters.num_misses += 1
        return None

    def take_late(self, prepared: PreparedDrafts, committed_token_ids: tuple[int, ...]) -> Proposal | None:
        """The draft for these tokens, of what came while it was being asked for: it serves as the answer."""
        draft = prepared.draft(committed_token_ids)
        num_tokens, num_used = len(prepared.draft_token_ids), 0 if draft is None else len(draft.draft_token_ids)
        self._counters.num_prepared_tokens += num_tokens
        self._counters.num_wasted_tokens += num_tokens - num_used
        self._counters.num_late_hits += draft is not None
        return draft
