"""The proposer `hybrid`: a lookup where it is confident, which costs nothing, else a model.

Where the draft may branch, a lookup that is not confident joins the model's candidates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from draft_service.proposers.lookup import proposal, refusal
from draft_service.proposers.lookup_table import LookupSequence, LookupTable
from draft_service.proposers.model import start_model_proposer
from pilotfish.config import Config
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.event_queue import EventQueue
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import CloseSequence, Command, Decode, Event, OpenSequence, Proposal, Propose, Verify
from pilotfish.speculation.lookup.index import LookupDraft, one_hot_probs
from pilotfish.speculation.lookup.lookups import LOOKUPS, MakeIndex
from pilotfish.speculation.trees.grafting import graft
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import Limits, LoadReport, ModelInfo, SamplingParams, TreeRequest

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
        self._grafts: dict[int, Graft] = {}
        """By sequence, what the model's answer is waited for with."""
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
                    self._grafts.pop(command.sequence_id, None)
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
        self._grafts.pop(command.sequence_id, None)
        start = command.base_length - len(command.new_token_ids)
        self._told_lengths[command.sequence_id] = min(self._told_lengths[command.sequence_id], start)

    def _answer(self, sequence: LookupSequence, request: Propose) -> None:
        draft = sequence.look_up(request, self._model.model.max_context_tokens)
        if draft.promises(self._min_accepted_tokens):
            self._queue.put([proposal(sequence, request, draft)])
            return
        told, request_of_model = self._told_lengths[request.sequence_id], request
        self._told_lengths[request.sequence_id] = request.base_length
        if request.tree is not None and draft.token_ids:
            graft = Graft(request.base_length, draft, request.tree.max_nodes, sequence.sampling)
            self._grafts[request.sequence_id] = graft
            request_of_model = graft.with_room(request, request.tree)
        new_token_ids = tuple(sequence.index.token_ids[told : request.base_length])
        # What the model would draft ahead, a lookup may know better, at no cost.
        request_of_model = msgspec.structs.replace(request_of_model, new_token_ids=new_token_ids, ahead=None)
        with contextlib.suppress(UnavailableError):  # the pump tells
            self._model.send([request_of_model])

    async def _pass_events(self) -> None:
        try:
            while True:
                self._queue.put([self._grafted(event) for event in await self._model.receive()])
        except PilotfishError as error:
            self._queue.fail(error)

    def _grafted(self, event: Event) -> Event:
        graft = self._grafts.get(event.sequence_id)
        if graft is None or not isinstance(event, Proposal) or event.base_length != graft.base_length:
            return event
        del self._grafts[event.sequence_id]
        return graft.onto(event)


@dataclass(frozen=True, slots=True)
class Graft:
    """A lookup's candidates that wait for the model's, to be verified beside them."""

    base_length: int
    draft: LookupDraft
    max_nodes: int
    sampling: SamplingParams

    def with_room(self, request: Propose, tree: TreeRequest) -> Propose:
        """The request with some of its nodes kept for the lookup: at most a quarter, they are the less certain."""
        kept = min(len(self.draft.token_ids), tree.max_nodes // 4)
        return msgspec.structs.replace(request, tree=TreeRequest(tree.max_nodes - kept, tree.branching))

    def onto(self, proposal: Proposal) -> Proposal:
        """The model's proposal with the lookup's candidates after it."""
        token_ids, tree = graft(
            proposal.draft_token_ids,
            DraftTree.of_message(proposal.parents, len(proposal.draft_token_ids)),
            self.draft.token_ids,
            DraftTree.of_message(self.draft.parents, len(self.draft.token_ids)),
            self.max_nodes,
        )
        grafted_token_ids = token_ids[len(proposal.draft_token_ids) :]
        return msgspec.structs.replace(
            proposal,
            draft_token_ids=token_ids,
            draft_probs=(*proposal.draft_probs, *one_hot_probs(grafted_token_ids, self.sampling)),
            parents=() if tree.is_chain else tree.parents,
        )


async def start_hybrid_proposer(config: Config) -> EngineClient:
    """Load config.draft.model, with a lookup before it. Raises ModelError kinds."""
    model = await start_model_proposer(config)
    make_index = LOOKUPS[_LOOKUP](config.draft)
    return HybridProposer(model, make_index, min_accepted_tokens=config.draft.hybrid_min_accepted_tokens)
