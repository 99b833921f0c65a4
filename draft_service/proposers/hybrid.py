"""The proposer `hybrid`: a lookup where it is confident, which costs nothing, else a model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from draft_service.proposers.lookup import refusal
from draft_service.proposers.lookup_table import LookupSequence, LookupTable
from draft_service.proposers.model import start_model_proposer
from pilotfish.config import Config
from pilotfish.engine.client import EngineClient
from pilotfish.engine.event_queue import EventQueue
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import CloseSequence, Command, Decode, Event, OpenSequence, Proposal, Propose, Verify
from pilotfish.speculation.lookup import one_hot_probs
from pilotfish.speculation.lookups import LOOKUPS, MakeIndex
from pilotfish.types import Limits, LoadReport, ModelInfo

_LOOKUP = "suffix"
"""The lookup that asks first: the better one, see docs/proposers.md."""


class HybridProposer:
    """An EngineClient around that of a model, which it owns. Must be made on a running loop.

    The model is told of a sequence's tokens only when it is asked: each Propose carries what was
    committed since its own last one, however many lookups answered in between.
    """

    def __init__(self, model: EngineClient, make_index: MakeIndex, *, min_accepted_tokens: float) -> None:
        """A lookup that promises at least min_accepted_tokens answers; else the model does."""
        self._model = model
        self._min_accepted_tokens = min_accepted_tokens
        self._table = LookupTable(make_index, self._answer)
        self._told_lengths: dict[int, int] = {}
        """Tokens of each sequence that the model was told, as far as they still hold."""
        self._queue = EventQueue()
        self._pump = asyncio.create_task(self._pass_events())

    @property
    def model(self) -> ModelInfo:
        return msgspec.structs.replace(self._model.model, proposer="hybrid")

    @property
    def limits(self) -> Limits:
        return self._model.limits

    @property
    def load(self) -> LoadReport:
        return self._model.load

    def send(self, commands: Sequence[Command]) -> None:
        self._queue.raise_if_failed()
        for command in commands:
            match command:
                case OpenSequence():
                    self._table.open(command)
                    self._told_lengths[command.sequence_id] = len(command.prompt_token_ids) + len(
                        command.output_token_ids
                    )
                    self._model.send([command])
                case Propose():
                    self._propose(command)
                case CloseSequence():
                    self._table.close(command.sequence_id)
                    self._told_lengths.pop(command.sequence_id, None)
                    self._model.send([command])
                case Verify() | Decode():
                    self._queue.put([refusal(command)])
        self._table.work()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._queue.fail(UnavailableError("the proposer was closed"))
        self._pump.cancel()
        await self._table.stop()
        await asyncio.gather(self._pump, return_exceptions=True)
        await self._model.close()

    def _propose(self, command: Propose) -> None:
        error = self._table.propose(command)
        if error is not None:
            self._queue.put([error])
            return
        start = command.base_length - len(command.new_token_ids)
        self._told_lengths[command.sequence_id] = min(self._told_lengths[command.sequence_id], start)

    def _answer(self, sequence: LookupSequence, request: Propose) -> None:
        room = self._model.model.max_context_tokens - request.base_length
        draft = sequence.index.propose(max(0, min(request.num_draft_tokens, room)))
        if draft.token_ids and draft.expected_accepted_tokens >= self._min_accepted_tokens:
            probs = one_hot_probs(draft.token_ids, sequence.sampling)
            self._queue.put([Proposal(request.sequence_id, request.base_length, draft.token_ids, probs)])
            return
        told = self._told_lengths[request.sequence_id]
        self._told_lengths[request.sequence_id] = request.base_length
        new_token_ids = tuple(sequence.index.token_ids[told : request.base_length])
        with contextlib.suppress(UnavailableError):  # the pump tells
            self._model.send([msgspec.structs.replace(request, new_token_ids=new_token_ids)])

    async def _pass_events(self) -> None:
        try:
            while True:
                self._queue.put(await self._model.receive())
        except PilotfishError as error:
            self._queue.fail(error)


async def start_hybrid_proposer(config: Config) -> EngineClient:
    """Load config.draft.model, with a lookup before it. Raises ModelError kinds."""
    model = await start_model_proposer(config)
    make_index = LOOKUPS[_LOOKUP](config.draft)
    return HybridProposer(model, make_index, min_accepted_tokens=config.draft.hybrid_min_accepted_tokens)
