"""One request over emulated engines: the orchestrator's own machine and drafter, told of things in virtual time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from orchestrator.answers.sequence import Sequence as AnswerSequence
from orchestrator.control.controller import Controller
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.requests.request import GenerationRequest, Mode, SpeculationOptions
from orchestrator.rounds.commands import Acquire, Acquired, Arrived, Close, Command, Event, Open, Send, Wake, Woken
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient, InTargetClient
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import Progress, RoundMachine
from orchestrator.rounds.peer import Peer
from orchestrator.rounds.target import Target
from pilotfish.messages import CloseSequence
from pilotfish.messages import Event as ReplicaEvent
from pilotfish.types import LoadReport, SamplingParams
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.view import NoText, Pool, View
from tests.support.virtual_stack.engine import Hear, VirtualEngine
from tests.support.virtual_stack.stack import VirtualStack

_CREDIT_TOKENS = 1024
_PROMPT_TOKENS = 512
_WARM_UP_TOKENS = 64
_ids = itertools.count(1)


class VirtualSequence:
    """Begins at once and never ends."""

    def __init__(self, stack: VirtualStack, mode: Mode, num_draft_tokens: int, number: int) -> None:
        """number: makes prompt and text."""
        request = GenerationRequest(
            prompt_token_ids=tuple(100 + number for _ in range(_PROMPT_TOKENS)),
            sampling=SamplingParams(temperature=1.0, seed=number, max_tokens=ENDLESS),
            speculation=SpeculationOptions(mode=mode),
            num_speculative_tokens=num_draft_tokens,
        )
        self._stack, self._world = stack, stack.world
        self._engines = {"t": stack.target, "d": stack.draft}
        sequence, out, features = AnswerSequence(request, NoText()), list[Command](), FeatureFeed()  # type: ignore[arg-type]
        self._target = _view("t", stack.target)
        controller = InTargetController if stack.way.in_target else Controller
        drafter: DrafterClient = InTargetClient("eagle3", "eagle3")
        if not stack.way.in_target:
            pool = Pool(_view("d", stack.draft))
            features = FeatureFeed(stack.target.core.model.feature_layers)
            drafter = RemoteDrafter(pool, lambda _: math.inf, out, features=features, predraft=stack.predraft)
        self._machine = RoundMachine(
            sequence,
            controller(request, stack.control),
            drafter,
            Target(Pool(self._target), sequence, out, acquire_timeout_s=ENDLESS, features=features),
            out,
            credit_tokens=_CREDIT_TOKENS,
        )
        self._take(self._machine.start(self._world.now_s))

    def _on(self, event: Event) -> None:
        self._take(self._machine.on_event(event, self._world.now_s))

    def _take(self, progress: Progress) -> None:
        self._run(progress.commands)
        if num_tokens := sum(len(chunk.token_ids) for chunk in progress.chunks):
            self._stack.arrived(num_tokens)

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Acquire():
                    self._on(Acquired(self._target))
                case Open():
                    self._engine(command.peer).open(command.peer.sequence_id, self._ear(command.peer))
                    self._engine(command.peer).send(command.message)
                case Send():
                    self._engine(command.peer).send(command.message)
                case Close():
                    self._engine(command.peer).send(CloseSequence(command.peer.sequence_id))
                case Wake(at_s=at_s):
                    self._world.after(at_s - self._world.now_s, lambda at_s=at_s: self._on(Woken(at_s)))  # type: ignore[misc]

    def _engine(self, peer: Peer) -> VirtualEngine:
        return self._engines[peer.replica.replica_id]

    def _ear(self, peer: Peer) -> Hear:
        def hear(event: ReplicaEvent, load: LoadReport) -> None:
            self._on(Arrived(peer, event, self._world.now_s, load))

        return hear


def _view(replica_id: str, engine: VirtualEngine) -> View:
    return View(replica_id, engine, engine.core.model, engine.core.limits, lambda: next(_ids))


def tokens_per_s(
    stack: VirtualStack,
    mode: Mode,
    num_draft_tokens: int,
    num_sequences: int,
    num_tokens: int,
    *,
    first_number: int = 0,
) -> float:
    """Of all sequences together, in steady state, while each decodes about num_tokens. first_number: other ones make
    other texts."""
    for number in range(num_sequences):
        VirtualSequence(stack, mode, num_draft_tokens, first_number + number)
    goals = _WARM_UP_TOKENS * num_sequences, (_WARM_UP_TOKENS + num_tokens) * num_sequences
    while stack.num_tokens < goals[-1]:
        stack.world.run(stack.world.now_s + 0.05)
    (start_s, first), (end_s, last) = (next(at for at in stack.arrivals if at[1] >= goal) for goal in goals)
    return (last - first) / (end_s - start_s)
