"""What proposes draft tokens: the contract, and the drafter that needs no replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from orchestrator.sequence import Sequence
from pilotfish.speculation.ngram import NgramIndex
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution

_TOKENS_PER_SLICE = 512
"""Tokens indexed before other coroutines get their turn: well under a millisecond."""


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """What came of one request for draft tokens; nothing at all is an ordinary outcome."""

    token_ids: tuple[int, ...] = ()
    probs: tuple[SparseDistribution, ...] = ()
    """One per token in rejection mode, else empty."""
    elapsed_s: float = 0.0
    """Time the round waited for it."""
    problem: str = ""
    """Why it is empty, when something went wrong; empty if the drafter had no idea."""


class Drafter(Protocol):
    """Proposes tokens for one sequence. Nothing that happens here fails a request."""

    @property
    def num_missed_deadlines(self) -> int: ...

    @property
    def unavailable_reason(self) -> str:
        """Why proposals cannot be had now; empty if they can."""

    def prepare(self, sequence: Sequence) -> None:
        """Begin to read the prompt, while the target does. Optional; never raises."""

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        """At most num_tokens tokens that continue the committed ones. Raises nothing but cancellation."""

    def close(self) -> None:
        """Free what is held elsewhere. Idempotent."""


def needs_draft_probs(sampling: SamplingParams) -> bool:
    """Whether the target needs the draft distributions to decide (rejection sampling)."""
    return sampling.acceptance is AcceptanceMode.REJECTION and not sampling.is_greedy


class NgramDrafter:
    """Prompt lookup in this process: what followed the same tokens earlier."""

    num_missed_deadlines = 0
    unavailable_reason = ""

    def __init__(self, sampling: SamplingParams, *, prompt_lookup_min: int, prompt_lookup_max: int) -> None:
        self._index = NgramIndex(prompt_lookup_min, prompt_lookup_max)
        self._num_indexed_tokens = 0
        self._needs_probs = needs_draft_probs(sampling)

    def prepare(self, sequence: Sequence) -> None:
        """Nothing: the first proposal indexes the prompt."""

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await self._catch_up(sequence)
        token_ids = self._index.propose(num_tokens).token_ids
        return DraftBlock(
            token_ids=token_ids,
            # Looked up, not sampled: all the probability is on the token itself.
            probs=tuple(SparseDistribution((token_id,), (1.0,)) for token_id in token_ids) if self._needs_probs else (),
            elapsed_s=loop.time() - started_s,
        )

    async def _catch_up(self, sequence: Sequence) -> None:
        new_token_ids = sequence.tokens_since(self._num_indexed_tokens)
        for start in range(0, len(new_token_ids), _TOKENS_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            self._index.append(new_token_ids[start : start + _TOKENS_PER_SLICE])
        self._num_indexed_tokens += len(new_token_ids)

    def close(self) -> None:
        """Nothing is held elsewhere."""
