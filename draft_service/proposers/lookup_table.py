"""The sequences of a lookup, indexed on the event loop in slices, and what is asked of them meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pilotfish.messages import OpenSequence, Propose, SequenceError
from pilotfish.speculation.lookup.index import LookupDraft, LookupIndex
from pilotfish.speculation.lookup.lookups import MakeIndex
from pilotfish.types import SamplingParams, SequenceErrorCode

TOKENS_PER_TURN = 256
"""Tokens indexed before the event loop turns to others: a millisecond at most."""


@dataclass(slots=True)
class LookupSequence:
    """A sequence's index, the tokens that are still to be indexed, and what is wanted after them."""

    sequence_id: int
    sampling: SamplingParams
    num_prompt_tokens: int
    index: LookupIndex
    backlog: list[int] = field(default_factory=list)
    request: Propose | None = None

    @property
    def length(self) -> int:
        return len(self.index) + len(self.backlog)

    def replace_from(self, start: int, token_ids: Sequence[int]) -> None:
        """State the tokens from index `start` on."""
        if start < len(self.index):
            self.index.truncate(start)
        del self.backlog[start - len(self.index) :]
        self.backlog.extend(token_ids)

    def index_some(self, max_tokens: int) -> int:
        """Index up to max_tokens of the backlog; returns how many."""
        tokens = self.backlog[:max_tokens]
        self.index.append(tokens)
        del self.backlog[:max_tokens]
        return len(tokens)

    def look_up(self, request: Propose, max_context_tokens: int) -> LookupDraft:
        """The draft for a request, once all tokens are indexed; none beyond the context."""
        room = max_context_tokens - request.base_length
        return self.index.propose(max(0, min(request.num_draft_tokens, room)), request.tree)

    def finish(self) -> None:
        """The sequence has ended."""
        if len(self.index) > self.num_prompt_tokens:
            self.index.finish(self.num_prompt_tokens)


class LookupTable:
    """Open sequences by id. Must be made on a running loop and stopped."""

    def __init__(self, make_index: MakeIndex, answer: Callable[[LookupSequence, Propose], None]) -> None:
        """`answer` is called with a sequence whose index holds all of its tokens, and what is wanted of it."""
        self._make_index = make_index
        self._answer = answer
        self._sequences: dict[int, LookupSequence] = {}
        self._behind: deque[LookupSequence] = deque()
        self._has_backlog = asyncio.Event()
        self._task = asyncio.create_task(self._catch_up())

    def __len__(self) -> int:
        return len(self._sequences)

    def open(self, command: OpenSequence) -> None:
        sequence = LookupSequence(
            command.sequence_id, command.sampling, len(command.prompt_token_ids), self._make_index()
        )
        sequence.replace_from(0, (*command.prompt_token_ids, *command.output_token_ids))
        self._sequences[command.sequence_id] = sequence
        self._behind.append(sequence)

    def propose(self, command: Propose) -> SequenceError | None:
        """Answered later, at the latest by the next `work`; the error to send back if it cannot be."""
        sequence = self._sequences.get(command.sequence_id)
        start = command.base_length - len(command.new_token_ids)
        if sequence is None or not 0 <= start <= sequence.length:
            message = (
                "unknown sequence, or tokens before the stated ones are missing: open it with all committed tokens"
            )
            code = SequenceErrorCode.UNKNOWN_SEQUENCE
            return SequenceError(command.sequence_id, code, message, command.base_length)
        is_behind = bool(sequence.backlog) or sequence.request is not None
        sequence.replace_from(start, command.new_token_ids)
        # A newer request replaces one that was not answered: that round is over.
        sequence.request = command
        if not is_behind:
            self._behind.append(sequence)
        return None

    def close(self, sequence_id: int) -> None:
        """Unknown ids are ignored."""
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is not None:
            sequence.finish()

    def work(self, max_tokens: int = TOKENS_PER_TURN) -> None:
        """Serve the sequences in turn until none is behind or about max_tokens are indexed.

        Call it after commands: what is short, as between two rounds, is answered without a task switch.
        """
        num_tokens = 0
        while self._behind and num_tokens < max_tokens:
            sequence = self._behind.popleft()
            if self._sequences.get(sequence.sequence_id) is not sequence:
                continue
            # Everything costs a little: a flood of empty requests must not hold the loop either.
            num_tokens += 1 + sequence.index_some(max_tokens)
            if sequence.backlog:
                self._behind.append(sequence)
            elif sequence.request is not None:
                request, sequence.request = sequence.request, None
                self._answer(sequence, request)
        if self._behind:
            self._has_backlog.set()
        else:
            self._has_backlog.clear()

    async def stop(self) -> None:
        """Forget everything. Idempotent."""
        self._task.cancel()
        self._sequences.clear()
        await asyncio.wait((self._task,))

    async def _catch_up(self) -> None:
        while True:
            await self._has_backlog.wait()
            self.work()
            await asyncio.sleep(0)
