"""Lookups in this process: a drafter that needs no replica."""

from __future__ import annotations

import asyncio
import time

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.drafter import DraftBlock, Drafter
from pilotfish.speculation.lookup.index import LookupIndex, one_hot_probs
from pilotfish.types import TreeRequest

_TOKENS_PER_SLICE = 128
"""Tokens indexed before other coroutines get their turn: under a millisecond."""


class LookupDrafter(Drafter):
    """One per request."""

    def __init__(self, index: LookupIndex, *, num_prompt_tokens: int, tree: TreeRequest | None = None) -> None:
        """Owns `index`, which is empty. tree: how drafts may branch; None: chains."""
        self._tree = tree
        self._index = index
        self._num_prompt_tokens = num_prompt_tokens
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False

    def prepare(self, sequence: Sequence) -> None:
        self._reading = asyncio.create_task(self._catch_up(sequence))

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        started_s = time.monotonic()
        await self._catch_up(sequence)
        draft = self._index.propose(num_tokens, self._tree)
        return DraftBlock(
            token_ids=draft.token_ids,
            probs=one_hot_probs(draft.token_ids, sequence.request.sampling),
            elapsed_s=time.monotonic() - started_s,
            parents=draft.parents,
        )

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        new_token_ids = sequence.tokens_since(len(self._index))
        if len(new_token_ids) > _TOKENS_PER_SLICE:
            return DraftBlock()
        self._index.append(new_token_ids)
        token_ids = self._index.propose(num_tokens).token_ids
        return DraftBlock(token_ids, one_hot_probs(token_ids, sequence.request.sampling))

    async def _catch_up(self, sequence: Sequence) -> None:
        # Somebody else may index, too, while this one waits for its next turn.
        while new_token_ids := sequence.tokens_since(len(self._index))[:_TOKENS_PER_SLICE]:
            self._index.append(new_token_ids)
            if len(new_token_ids) == _TOKENS_PER_SLICE:
                await asyncio.sleep(0)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if not self._is_closed and len(self._index) > self._num_prompt_tokens:
            self._index.finish(self._num_prompt_tokens)
        self._is_closed = True
