"""A request whose luck is drawn: when it begins, and which of its drafts are there."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from orchestrator.control.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.rounds.peer import Peer
from pilotfish.messages import Command, Event, Proposal, Propose
from pilotfish.types import SamplingParams
from tests.support.simulated_stack.controller_stack import ControllerStack
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.sequence import SimulatedSequence

_MAX_START_S = 0.01
"""Requests do not come in step."""
_PASSAGE_TOKENS = 16
"""In which a lookup finds something or nothing."""


class ControllerSequence(SimulatedSequence):
    """Begins by itself, a moment after it is made."""

    def __init__(
        self,
        stack: ControllerStack,
        controller: Controller,
        num_tokens: int = ENDLESS,
        luck: int | None = None,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        """luck: two sequences of one number have the same text, and the same drafts accepted; None: its own."""
        luck = stack.num_sequences if luck is None else luck
        super().__init__(stack, controller, _request(stack, num_tokens, luck), on_answered)
        self._chances = stack
        self._luck = f"text {self._world.seed} {luck}"
        self._untold: tuple[int, ...] = ()
        """Tokens that the draft replica was not told, as the draft on them was there at once."""
        self._world.after(self._world.random.random() * _MAX_START_S, self.start)

    def _send(self, peer: Peer, message: Command) -> None:
        if not isinstance(message, Propose):
            super()._send(peer, message)
            return
        new_token_ids = self._untold + message.new_token_ids
        if self._world.random.random() < self._chances.ahead:
            self._untold = new_token_ids
            self._hear(peer, Proposal(peer.sequence_id, message.base_length, self._draft(message.num_draft_tokens)))
        else:
            self._untold = ()
            super()._send(peer, msgspec.structs.replace(message, new_token_ids=new_token_ids))

    def _hear(self, peer: Peer, message: Event) -> None:
        if isinstance(message, Proposal) and not self._is_foreseeable():
            message = msgspec.structs.replace(message, draft_token_ids=(), draft_probs=())
        super()._hear(peer, message)

    def _draft(self, num_tokens: int) -> tuple[int, ...]:
        """As the draft replica would have it."""
        text, model = list(self._sequence.tokens_since(0)), self._chances.language_model
        length = len(text)
        for _ in range(num_tokens):
            text.append(model.draft_token(text, self._sequence.request.sampling, self._chances.acceptance))
        return tuple(text[length:])

    def _is_foreseeable(self) -> bool:
        """Whether the drafter has an answer here."""
        if self._chances.answered >= 1:
            return True
        passage = self._sequence.num_output_tokens // _PASSAGE_TOKENS
        return random.Random(f"{self._luck} {passage}").random() < self._chances.answered


def _request(stack: ControllerStack, num_tokens: int, luck: int) -> GenerationRequest:
    model, lengths = stack.language_model, stack.prompt_tokens
    num_prompt_tokens = lengths[luck % len(lengths)] if lengths else 0
    words = random.Random(f"prompt {stack.world.seed} {luck}")
    return GenerationRequest(
        prompt_token_ids=tuple(words.choices(range(model.vocab_size), k=max(model.order, num_prompt_tokens))),
        sampling=SamplingParams(temperature=0, max_tokens=num_tokens),
        speculation=SpeculationOptions(),
        num_speculative_tokens=0,
    )
