"""A lookup in this process before a drafter on a replica: a round that it is sure of asks nobody."""

from __future__ import annotations

import dataclasses

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Event
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient
from orchestrator.rounds.drafter_clients.lookup_drafter import LookupDrafter
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.peer import Peer


class LookupFirst(DrafterClient):
    """See the module. One per request.

    1. A predraft that fits is verified first, as it is there already.
    2. Where the lookup promises enough accepted tokens, its draft is verified, and nothing is drafted ahead: the next
       round is likely the lookup's as well. The replica gets the tokens with the next question.
    3. Else the replica is asked. While none can be had, the lookup drafts alone, whatever it promises.
    """

    has_lookup = True

    def __init__(
        self, name: str, lookup: LookupDrafter, other: RemoteDrafter, *, min_accepted_tokens: float, max_tokens: int = 0
    ) -> None:
        """name: the lookup's. max_tokens: a lookup's draft may have so many, whatever is asked of the other: its match
        says how far to go."""
        self._name = name
        self._lookup = lookup
        self._other = other
        self._min_accepted_tokens = min_accepted_tokens
        self._max_tokens = max_tokens

    @property
    def peer(self) -> Peer | None:
        return self._other.peer

    @property
    def num_missed_deadlines(self) -> int:
        return self._other.num_missed_deadlines

    @property
    def unavailable_reason(self) -> str:
        return "" if self.stand_in else self._other.unavailable_reason

    @property
    def is_saturated(self) -> bool:
        return self._other.is_saturated

    @property
    def stand_in(self) -> str:
        return self._name if self._other.unavailable_reason and not self._lookup.unavailable_reason else ""

    def prepare(self, sequence: Sequence, now_s: float) -> None:
        self._other.prepare(sequence, now_s)
        self._lookup.prepare(sequence, now_s)

    def ask(self, sequence: Sequence, num_tokens: int, now_s: float) -> Draft | None:
        if self.stand_in:
            return self._lookup.ask(sequence, num_tokens, now_s)
        found = self._promise(sequence, num_tokens)
        draft = self._other.ready(sequence, num_tokens, now_s, drafts_next=not found.token_ids)
        if draft is not None:
            return draft
        return found if found.token_ids else self._other.ask_replica(sequence, num_tokens, now_s)

    def hear(self, event: Event, sequence: Sequence, now_s: float) -> Draft | None:
        looked_up = self._lookup.hear(event, sequence, now_s)  # it reads on, whoever was asked
        return looked_up or self._other.hear(event, sequence, now_s)

    def handed_on(self, sequence: Sequence, num_tokens: int, now_s: float) -> Draft:
        is_next = bool(self._promise(sequence, num_tokens).token_ids)
        return self._other.handed_on(sequence, 0 if is_next else num_tokens, now_s)

    def glance(self, sequence: Sequence, num_tokens: int) -> Draft:
        if self.stand_in:
            return self._lookup.glance(sequence, num_tokens)
        return self._promise(sequence, num_tokens, is_chain=True)

    def close(self) -> None:
        self._lookup.close()
        self._other.close()

    def _promise(self, sequence: Sequence, num_tokens: int, *, is_chain: bool = False) -> Draft:
        # The target adds a token of its own to what it accepts.
        most = min(max(num_tokens, self._max_tokens), sequence.num_remaining_tokens - 1)
        draft = self._lookup.promise(sequence, max(0, most), self._min_accepted_tokens, is_chain=is_chain)
        return dataclasses.replace(draft, spared_drafter=True) if draft.token_ids else draft
