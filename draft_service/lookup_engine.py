"""Lookups in the draft service: they need a tokenizer's identity, no weights and no torch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.config import Config
from pilotfish.engine.process.process_engine import EventQueue
from pilotfish.errors import UnavailableError
from pilotfish.messages import (
    CloseSequence,
    EngineCommand,
    Event,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
)
from pilotfish.models.store.catalogue import model_id, resolve
from pilotfish.models.store.folder import read_metadata
from pilotfish.models.store.pull import tokenizer_folder
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.speculation.lookup.index import MakeIndex, lookup_of, one_hot_probs
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import Limits, LoadReport, ModelInfo, SamplingParams

TOKENS_PER_TURN = 256
"""Tokens indexed before the event loop turns to others: a millisecond at most."""


@dataclass(slots=True, eq=False)
class _Sequence:
    """What is open, and what is wanted of it."""

    sequence_id: int
    sampling: SamplingParams
    lookup: SequenceLookup
    request: Propose | None = None


class LookupEngine:
    """An EngineClient that looks drafts up on the event loop, where it indexes long texts in slices. Must be made on a
    running loop."""

    def __init__(self, model: ModelInfo, limits: Limits, make_index: MakeIndex) -> None:
        self.model = model
        self.limits = limits
        self._make_index = make_index
        self._sequences: dict[int, _Sequence] = {}
        self._behind: deque[_Sequence] = deque()
        """Sequences with tokens to index or a request to answer."""
        self._has_backlog = asyncio.Event()
        self._queue = EventQueue()
        self._task = asyncio.create_task(self._catch_up())

    @property
    def load(self) -> LoadReport:
        return LoadReport(num_sequences_running=len(self._sequences))

    def send(self, commands: Sequence[EngineCommand]) -> None:
        self._queue.raise_if_failed()
        for command in commands:
            match command:
                case OpenSequence():
                    self._open(command)
                case Propose():
                    self._propose(command)
                case CloseSequence():
                    sequence = self._sequences.pop(command.sequence_id, None)
                    if sequence is not None:
                        sequence.lookup.finish()
        # What is short, as between two rounds, is answered without a task switch.
        self._work()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._queue.fail(UnavailableError("the lookups were closed"))
        self._task.cancel()
        self._sequences.clear()
        await asyncio.wait((self._task,))

    def _open(self, command: OpenSequence) -> None:
        lookup = SequenceLookup(self._make_index(command.cache_salt), len(command.prompt_token_ids))
        lookup.replace_from(0, (*command.prompt_token_ids, *command.output_token_ids))
        sequence = _Sequence(command.sequence_id, command.sampling, lookup)
        self._sequences[command.sequence_id] = sequence
        self._behind.append(sequence)
        self._queue.put([Opened(command.sequence_id, 0)])

    def _propose(self, command: Propose) -> None:
        """Answered later, at the latest by the next `_work`, or at once with what is wrong."""
        sequence = self._sequences.get(command.sequence_id)
        start = command.base_length - len(command.new_token_ids)
        if sequence is None or not 0 <= start <= sequence.lookup.length:
            self._queue.put([SequenceError.unknown(command.sequence_id, command.base_length)])
            return
        is_behind = sequence.lookup.num_waiting > 0 or sequence.request is not None
        sequence.lookup.replace_from(start, command.new_token_ids)
        # A newer request replaces one that was not answered: that round is over.
        sequence.request = command
        if not is_behind:
            self._behind.append(sequence)

    def _work(self) -> None:
        """Serve the sequences in turn until none is behind or about TOKENS_PER_TURN are indexed."""
        num_tokens = 0
        while self._behind and num_tokens < TOKENS_PER_TURN:
            sequence = self._behind.popleft()
            if self._sequences.get(sequence.sequence_id) is not sequence:
                continue
            # Everything costs a little: a flood of empty requests must not hold the loop either.
            num_tokens += 1 + sequence.lookup.index_some(TOKENS_PER_TURN)
            if sequence.lookup.num_waiting:
                self._behind.append(sequence)
            elif sequence.request is not None:
                request, sequence.request = sequence.request, None
                self._queue.put([self._proposal(sequence, request)])
        if self._behind:
            self._has_backlog.set()
        else:
            self._has_backlog.clear()

    def _proposal(self, sequence: _Sequence, request: Propose) -> Proposal:
        room = max(0, self.model.max_context_tokens - request.base_length)
        draft = sequence.lookup.draft(min(request.num_draft_tokens, room), request.unpriced_tree)
        probs = one_hot_probs(draft.token_ids, sequence.sampling)
        return Proposal(request.sequence_id, request.base_length, draft.token_ids, probs, parents=draft.parents)

    async def _catch_up(self) -> None:
        while True:
            await self._has_backlog.wait()
            self._work()
            await asyncio.sleep(0)


async def start_lookup_engine(config: Config, name: str) -> LookupEngine:
    """Look up in sequences of config.draft.model's tokens. Raises ModelError kinds when its folder cannot be had."""
    draft = config.draft
    folder = await asyncio.to_thread(tokenizer_folder, draft.model, config.cache_dir)
    metadata = await asyncio.to_thread(read_metadata, folder)
    model = ModelInfo(
        # As the model loader of the target names it.
        model_id=model_id(resolve(draft.model)),
        tokenizer_fingerprint=await asyncio.to_thread(tokenizer_fingerprint, folder),
        vocab_size=metadata.vocab_size,
        max_context_tokens=draft.engine.max_context_tokens or metadata.max_context_tokens,
        deterministic=True,
        proposer=name,
        tokenizer_path=str(folder),
    )
    limits = Limits(max_draft_tokens=draft.engine.max_draft_tokens, max_sequences=draft.engine.max_sequences)
    return LookupEngine(model, limits, lookup_of(name)(draft))
