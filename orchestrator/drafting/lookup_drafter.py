"""Lookups in this process: a drafter that needs no replica."""

from __future__ import annotations

import asyncio
import time

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.drafter import DraftBlock, Drafter
from orchestrator.drafting.lookup_budget import LookupBudget
from pilotfish.speculation.lookup.index import LookupIndex, one_hot_probs
from pilotfish.types import TreeRequest

_TOKENS_PER_SLICE = 128
"""Tokens indexed before other coroutines get their turn: under a millisecond."""


class LookupDrafter(Drafter):
    """One per request."""

    unavailable_reason = ""

    def __init__(
        self, index: LookupIndex, budget: LookupBudget, *, num_prompt_tokens: int, tree: TreeRequest | None = None
    ) -> None:
        """Owns `index`, which is empty. budget: of all requests. tree: how drafts may branch; None: chains."""
        self._tree = tree
        self._index: LookupIndex | None = index
        """None: it was closed, or found no room."""
        self._budget = budget
        self._num_taken = 0
        """Tokens of the budget that it has."""
        self._num_prompt_tokens = num_prompt_tokens
        self._reading: asyncio.Task[None] | None = None

    def prepare(self, sequence: Sequence) -> None:
        self._reading = asyncio.create_task(self._catch_up(sequence))

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        started_s = time.monotonic()
        await self._catch_up(sequence)
        if self._index is None:
            return DraftBlock(problem=self.unavailable_reason)
        draft = self._index.propose(num_tokens, self._tree)
        return DraftBlock(
            token_ids=draft.token_ids,
            probs=one_hot_probs(draft.token_ids, sequence.request.sampling),
            elapsed_s=time.monotonic() - started_s,
            parents=draft.parents,
        )

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        index = self._index_with_room(sequence)
        if index is None:
            return DraftBlock()
        new_token_ids = sequence.tokens_since(len(index))
        if len(new_token_ids) > _TOKENS_PER_SLICE:
            return DraftBlock()
        index.append(new_token_ids)
        token_ids = index.propose(num_tokens).token_ids
        return DraftBlock(token_ids, one_hot_probs(token_ids, sequence.request.sampling))

    async def _catch_up(self, sequence: Sequence) -> None:
        # Somebody else may index, too, while this one waits for its next turn.
        while (index := self._index_with_room(sequence)) is not None:
            new_token_ids = sequence.tokens_since(len(index))[:_TOKENS_PER_SLICE]
            index.append(new_token_ids)
            if len(new_token_ids) < _TOKENS_PER_SLICE:
                return
            await asyncio.sleep(0)

    def _index_with_room(self, sequence: Sequence) -> LookupIndex | None:
        """The index, if all committed tokens may be in it: a part of them would take memory and find little."""
        num_missing = sequence.length - self._num_taken
        if self._index is None or num_missing <= 0:
            return self._index
        if self._budget.take(num_missing):
            self._num_taken += num_missing
            return self._index
        self._budget.num_refused += 1
        self.unavailable_reason = (
            f"the lookups of all requests hold {self._budget.num_tokens} tokens, and this one's {sequence.length} "
            f"would make more than {self._budget.max_tokens} (orchestrator.speculation.lookup_tokens)"
        )
        self._forget()
        return None

    def _forget(self) -> None:
        self._index = None
        self._budget.give_back(self._num_taken)
        self._num_taken = 0

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._index is not None and len(self._index) > self._num_prompt_tokens:
            self._index.finish(self._num_prompt_tokens)
        self._forget()
