"""One request over simulated replicas: the orchestrator's own machine, with what it is told in virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec

from orchestrator.answers.sequence import Sequence as AnswerSequence
from orchestrator.control.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.rounds.commands import Acquire, Acquired, Arrived, Close, Command, Open, Send
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import Progress, RoundMachine
from orchestrator.rounds.peer import Peer
from orchestrator.rounds.target import Target
from pilotfish.messages import CloseSequence, Event, Proposal, Propose
from pilotfish.messages import Command as Message
from pilotfish.types import SamplingParams
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.replica import Replica
from tests.support.simulated_stack.stack import SimulatedStack
from tests.support.simulated_stack.view import NoText, Pool, View
from tests.support.simulated_stack.world import NETWORK_S

_MAX_START_S = 0.01
"""Requests do not come in step."""
_PASSAGE_TOKENS = 16
"""In which a lookup finds something or nothing."""
_CREDIT_TOKENS = 1024


def _view(replica_id: str, replica: Replica, sequence_id: int) -> View:
    return View(replica_id, replica, replica.core.model, replica.core.limits, lambda: sequence_id)


class SimulatedSequence:
    """Begins by itself, a moment after it is made."""

    def __init__(
        self,
        stack: SimulatedStack,
        controller: Controller,
        num_tokens: int = ENDLESS,
        luck: int | None = None,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        """luck: two sequences of one number have the same text, and the same drafts accepted; None: its own."""
        self.controller = controller
        self._stack, self._world = stack, stack.world
        self._on_answered = on_answered
        luck = stack.num_sequences if luck is None else luck
        stack.num_sequences += 1
        num_prompt_tokens = stack.prompt_tokens[luck % len(stack.prompt_tokens)] if stack.prompt_tokens else 0
        words = random.Random(f"prompt {self._world.seed} {luck}")
        ids = range(stack.language_model.vocab_size)
        self._luck = f"text {self._world.seed} {luck}"
        request = GenerationRequest(
            prompt_token_ids=tuple(words.choices(ids, k=max(stack.language_model.order, num_prompt_tokens))),
            sampling=SamplingParams(temperature=0, max_tokens=num_tokens),
            speculation=SpeculationOptions(),
            num_speculative_tokens=0,
        )
        self._sequence = AnswerSequence(request, NoText())  # type: ignore[arg-type]
        self._untold: tuple[int, ...] = ()
        """Tokens that the draft replica was not told, as the draft on them was there at once."""
        out: list[Command] = []
        self._target = _view("t", stack.target, stack.num_sequences)
        self._machine = RoundMachine(
            self._sequence,
            controller,
            RemoteDrafter(Pool(_view("d", stack.draft, stack.num_sequences)), lambda _: math.inf, out),
            Target(Pool(self._target), self._sequence, out, acquire_timeout_s=ENDLESS),
            out,
            credit_tokens=_CREDIT_TOKENS,
        )
        self._is_stopped = False
        self._world.after(self._world.random.random() * _MAX_START_S, self._start)

    @property
    def num_remaining(self) -> int:
        """Output tokens to come."""
        return self._sequence.num_remaining_tokens

    def stop(self) -> None:
        """Its client has gone."""
        if not self._is_stopped:
            self._is_stopped = True
            self._run(self._machine.close())

    def _start(self) -> None:
        if not self._is_stopped:
            self._take(self._machine.start(self._world.now_s))

    def _hear(self, peer: Peer, message: Event) -> None:
        if isinstance(message, Proposal) and not self._is_foreseeable():
            message = msgspec.structs.replace(message, draft_token_ids=(), draft_probs=())
        now_s = self._world.now_s
        self._take(self._machine.on_event(Arrived(peer, message, now_s, self._stack.target.load), now_s))

    def _take(self, progress: Progress) -> None:
        self._run(progress.commands)
        self._stack.num_tokens += sum(len(chunk.token_ids) for chunk in progress.chunks)
        if self._sequence.is_finished and not self._is_stopped:
            self.stop()
            self._on_answered()

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Acquire():
                    self._take(self._machine.on_event(Acquired(self._target), self._world.now_s))
                case Open():
                    peer = command.peer
                    _replica(peer).listeners[peer.sequence_id] = partial(self._hear, peer)
                    self._submit(peer, command.message)
                case Send() if isinstance(command.message, Propose):
                    self._propose(command.peer, command.message)
                case Send():
                    self._submit(command.peer, command.message)
                case Close():
                    del _replica(command.peer).listeners[command.peer.sequence_id]
                    self._submit(command.peer, CloseSequence(command.peer.sequence_id))

    def _propose(self, peer: Peer, command: Propose) -> None:
        new_token_ids = self._untold + command.new_token_ids
        if self._world.random.random() < self._stack.ahead:
            self._untold = new_token_ids
            self._hear(peer, Proposal(peer.sequence_id, command.base_length, self._draft(command.num_draft_tokens)))
        else:
            self._untold = ()
            self._submit(peer, msgspec.structs.replace(command, new_token_ids=new_token_ids))

    def _draft(self, num_tokens: int) -> tuple[int, ...]:
        """As the draft replica would have it."""
        text, model = list(self._sequence.tokens_since(0)), self._stack.language_model
        length = len(text)
        for _ in range(num_tokens):
            text.append(model.draft_token(text, self._sequence.request.sampling, self._stack.acceptance))
        return tuple(text[length:])

    def _is_foreseeable(self) -> bool:
        """Whether the drafter has an answer here."""
        if self._stack.answered >= 1:
            return True
        passage = self._sequence.num_output_tokens // _PASSAGE_TOKENS
        return random.Random(f"{self._luck} {passage}").random() < self._stack.answered

    def _submit(self, peer: Peer, message: Message) -> None:
        self._world.after(NETWORK_S, lambda: _replica(peer).submit(message))


def _replica(peer: Peer) -> Replica:
    return cast("Replica", cast("View", peer.replica).replica)
