"""A draft model of another vocabulary, as an idle engine in the target's tokens (draft_service.translation)."""

from __future__ import annotations

import msgspec

from draft_service.translation.method import Method, method_for
from draft_service.translation.sequence import TranslatedSequence
from draft_service.translation.vocabularies import Vocabularies
from pilotfish.engine.core.engine import Engine
from pilotfish.messages import CloseSequence, Event, OpenSequence, Proposal, Propose, SequenceError


class TranslatedDrafter:
    """See draft_all, which takes it for the drafter's engine."""

    def __init__(self, core: Engine, vocabularies: Vocabularies, vocabulary: str) -> None:
        """vocabulary: as draft.vocabulary, but for `same`."""
        self._core = core
        self._vocabularies = vocabularies
        self._vocabulary = vocabulary
        self._sequences: dict[int, TranslatedSequence] = {}
        self._answered: list[Event] = []
        self.limits = core.limits
        self.model = msgspec.structs.replace(core.model, max_context_tokens=vocabularies.target.max_context_tokens)
        if (common := vocabularies.common()) is not None:
            core.submit(common)

    def submit(self, command: OpenSequence | Propose | CloseSequence) -> None:
        match command:
            case OpenSequence():
                prompt = self._vocabularies.drafter_prompt(command.prompt_token_ids)
                text = (*command.prompt_token_ids, *command.output_token_ids)
                method = method_for(self._vocabulary, self._vocabularies, text, prompt)
                sequence = TranslatedSequence(command, prompt, self._vocabularies, method)
                self._sequences[command.sequence_id] = sequence
                self._core.submit(sequence.opening())
            case Propose():
                self._propose(command, self._sequences[command.sequence_id])
            case CloseSequence():
                del self._sequences[command.sequence_id]
                self._core.submit(command)

    def step(self) -> list[Event]:
        answered, self._answered = self._answered, []
        events = self._core.step() if self._core.has_work else []
        return [*answered, *(self._event(event) for event in events)]

    def _propose(self, command: Propose, sequence: TranslatedSequence) -> None:
        own = sequence.request(command, self.limits.max_draft_tokens)
        if own.base_length >= self._core.model.max_context_tokens:
            self._answered.append(Proposal(command.sequence_id, command.base_length, ()))  # as in service: none
            return
        if sequence.method is Method.INTERSECTION:
            self._core.submit(sequence.use())
        self._core.submit(own)

    def _event(self, event: Event) -> Event:
        match event:
            case Proposal():
                return self._sequences[event.sequence_id].proposal(event)
            case SequenceError():
                return self._sequences[event.sequence_id].error(event)
        return event
