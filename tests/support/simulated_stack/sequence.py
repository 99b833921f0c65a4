"""One request over simulated engines: the orchestrator's own machine and drafter, told of things in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from orchestrator.answers.sequence import Sequence as AnswerSequence
from orchestrator.control.controller import Controller
from orchestrator.requests.request import GenerationRequest
from orchestrator.rounds.commands import Acquire, Acquired, Arrived, Close, Command, Event, Open, Send, Wake, Woken
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient, InTargetClient
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import Progress, RoundMachine
from orchestrator.rounds.peer import Peer
from orchestrator.rounds.target import Target
from pilotfish.messages import CloseSequence
from pilotfish.messages import Command as Message
from pilotfish.messages import Event as ReplicaEvent
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.engine import SimulatedEngine
from tests.support.simulated_stack.stack import Stack
from tests.support.simulated_stack.view import NoText, Pool, View

_CREDIT_TOKENS = 1024


class SimulatedSequence:
    """Whoever makes it starts it."""

    def __init__(
        self,
        stack: Stack,
        controller: Controller,
        request: GenerationRequest,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        self.controller = controller
        self._stack, self._world = stack, stack.world
        self._on_answered = on_answered
        stack.num_sequences += 1
        self._sequence = AnswerSequence(request, NoText())  # type: ignore[arg-type]
        self._target, out = stack.view(stack.target), list[Command]()
        features = FeatureFeed(stack.target.core.model.feature_layers)
        drafter: DrafterClient = InTargetClient("eagle3", "eagle3")
        if not stack.in_target:
            pool = Pool(stack.view(stack.draft))
            drafter = RemoteDrafter(pool, lambda _: math.inf, out, features=features, predraft=stack.predraft)
        self._machine = RoundMachine(
            self._sequence,
            controller,
            drafter,
            Target(Pool(self._target), self._sequence, out, acquire_timeout_s=ENDLESS, features=features),
            out,
            credit_tokens=_CREDIT_TOKENS,
        )
        self._is_stopped = False

    @property
    def num_remaining(self) -> int:
        """Output tokens to come."""
        return self._sequence.num_remaining_tokens

    def start(self) -> None:
        """Its request has come, unless its client has gone."""
        if not self._is_stopped:
            self._take(self._machine.start(self._world.now_s))

    def stop(self) -> None:
        """Its client has gone."""
        if not self._is_stopped:
            self._is_stopped = True
            self._run(self._machine.close())

    def _on(self, event: Event) -> None:
        self._take(self._machine.on_event(event, self._world.now_s))

    def _take(self, progress: Progress) -> None:
        self._run(progress.commands)
        if num_tokens := sum(len(chunk.token_ids) for chunk in progress.chunks):
            self._stack.arrived(num_tokens)
        if self._sequence.is_finished and not self._is_stopped:
            self.stop()
            self._on_answered()

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Acquire():
                    self._on(Acquired(self._target))
                case Open(peer=peer):
                    _engine(peer).open(peer.sequence_id, partial(self._hear, peer))
                    self._send(peer, command.message)
                case Send():
                    self._send(command.peer, command.message)
                case Close(peer=peer):
                    self._send(peer, CloseSequence(peer.sequence_id))
                case Wake(at_s=at_s, alarm=alarm):
                    self._world.after(at_s - self._world.now_s, partial(self._on, Woken(at_s, alarm)))

    def _send(self, peer: Peer, message: Message) -> None:
        _engine(peer).send(message)

    def _hear(self, peer: Peer, message: ReplicaEvent) -> None:
        self._on(Arrived(peer, message, self._world.now_s, _engine(peer).load))


def _engine(peer: Peer) -> SimulatedEngine:
    return cast("SimulatedEngine", cast("View", peer.replica).replica)
