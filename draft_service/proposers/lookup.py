"""Proposers that look drafts up (`ngram`, `suffix`): they need a tokenizer's identity, no weights and no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from draft_service.proposers.lookup_table import LookupSequence, LookupTable
from pilotfish.config import Config
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.event_queue import EventQueue
from pilotfish.errors import UnavailableError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
    Verify,
)
from pilotfish.models.store.catalogue import LocalFolder, resolve
from pilotfish.models.store.folder import read_metadata
from pilotfish.models.store.pull import pull_tokenizer
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.speculation.lookup.index import LookupDraft, one_hot_probs
from pilotfish.speculation.lookup.lookups import LOOKUPS, MakeIndex
from pilotfish.types import Limits, LoadReport, ModelInfo, SequenceErrorCode


class LookupProposer:
    """An EngineClient that looks drafts up on the event loop. Must be made on a running loop."""

    def __init__(self, model: ModelInfo, limits: Limits, make_index: MakeIndex) -> None:
        self._model = model
        self._limits = limits
        self._table = LookupTable(make_index, self._answer)
        self._queue = EventQueue()

    @property
    def model(self) -> ModelInfo:
        return self._model

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def load(self) -> LoadReport:
        return LoadReport(num_sequences_running=len(self._table))

    def send(self, commands: Sequence[Command]) -> None:
        self._queue.raise_if_failed()
        for command in commands:
            match command:
                case OpenSequence():
                    self._table.open(command)
                    self._queue.put([Opened(command.sequence_id, 0)])
                case Propose():
                    error = self._table.propose(command)
                    self._queue.put([error] if error is not None else [])
                case CloseSequence():
                    self._table.close(command.sequence_id)
                case Verify() | Decode():
                    self._queue.put([refusal(command)])
        self._table.work()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._queue.fail(UnavailableError("the proposer was closed"))
        await self._table.stop()

    def _answer(self, sequence: LookupSequence, request: Propose) -> None:
        draft = sequence.look_up(request, self._model.max_context_tokens)
        self._queue.put([proposal(sequence, request, draft)])


def proposal(sequence: LookupSequence, request: Propose, draft: LookupDraft) -> Proposal:
    """The answer to a request."""
    probs = one_hot_probs(draft.token_ids, sequence.sampling)
    return Proposal(request.sequence_id, request.base_length, draft.token_ids, probs, parents=draft.parents)


def refusal(command: Verify | Decode) -> SequenceError:
    """The answer to a target's work."""
    message = "this is a drafter: it verifies and decodes nothing"
    return SequenceError(command.sequence_id, SequenceErrorCode.INVALID, message)


def lookup_proposer(name: str) -> Callable[[Config], Awaitable[EngineClient]]:
    """Starts the proposer of a lookup: see `start_lookup_proposer`."""

    async def start(config: Config) -> EngineClient:
        return await start_lookup_proposer(config, name)

    return start


async def start_lookup_proposer(config: Config, name: str) -> LookupProposer:
    """Look up in sequences of config.draft.model's tokens. Raises ModelError kinds when its folder cannot be had."""
    draft = config.draft
    folder = await asyncio.to_thread(_tokenizer_folder, draft.model, config.cache_dir)
    metadata = await asyncio.to_thread(read_metadata, folder)
    model = ModelInfo(
        # As the model loader of the target names it.
        model_id=folder.name if isinstance(resolve(draft.model), LocalFolder) else draft.model,
        tokenizer_fingerprint=await asyncio.to_thread(tokenizer_fingerprint, folder),
        vocab_size=metadata.vocab_size,
        max_context_tokens=draft.engine.max_context_tokens or metadata.max_context_tokens,
        deterministic=True,
        proposer=name,
        tokenizer_path=str(folder),
    )
    limits = Limits(max_draft_tokens=draft.engine.max_draft_tokens, max_sequences=draft.engine.max_sequences)
    return LookupProposer(model, limits, LOOKUPS[name](draft))


def _tokenizer_folder(name: str, cache_dir: str) -> Path:
    """A lookup needs no weights: none are downloaded from the hub, and a local folder is taken as it is."""
    folder = Path(name)
    return folder if folder.is_dir() else pull_tokenizer(name, cache_dir)
