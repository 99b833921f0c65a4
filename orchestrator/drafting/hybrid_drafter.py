"""A lookup in this process first; another drafter is asked only where it is not confident."""

from __future__ import annotations

import dataclasses

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.drafter import DraftBlock, Drafter
from orchestrator.drafting.lookup_drafter import LookupDrafter


class HybridDrafter:
    """See Drafter. A confident lookup spares the round trip and the other drafter's work: it is told nothing."""

    unavailable_reason = ""
    """The lookup is always there."""
    is_saturated = False

    def __init__(
        self, lookup: LookupDrafter, other: Drafter, *, min_accepted_tokens: float, max_lookup_tokens: int
    ) -> None:
        """The other drafter is asked unless the lookup promises min_accepted_tokens.

        max_lookup_tokens: of a lookup, which tells from its match how far to go.
        """
        self._lookup = lookup
        self._other = other
        self._min_accepted_tokens = min_accepted_tokens
        self._max_lookup_tokens = max_lookup_tokens

    @property
    def num_missed_deadlines(self) -> int:
        return self._other.num_missed_deadlines

    def prepare(self, sequence: Sequence) -> None:
        self._lookup.prepare(sequence)
        self._other.prepare(sequence)

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        found = await self._lookup.propose(sequence, self._max_lookup_tokens)
        if found.promises(self._min_accepted_tokens) or self._other.unavailable_reason:
            return found
        draft = await self._other.propose(sequence, num_tokens)
        elapsed_s = found.elapsed_s + draft.elapsed_s
        if draft.token_ids or not found.token_ids:
            return dataclasses.replace(draft, elapsed_s=elapsed_s)
        return dataclasses.replace(found, elapsed_s=elapsed_s)

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        return self._lookup.glance(sequence, self._max_lookup_tokens)

    def close(self) -> None:
        self._lookup.close()
        self._other.close()
