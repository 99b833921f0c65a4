"""A drafter of another vocabulary as an engine of the target's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from draft_service.translation.families import Family, families_of
from draft_service.translation.method import Method, method_for
from draft_service.translation.sequence import TranslatedSequence
from draft_service.translation.vocabularies import Vocabularies
from pilotfish.config import Config
from pilotfish.engine.process.process_engine import EventQueue
from pilotfish.engine_client import EngineClient
from pilotfish.errors import ModelError, PilotfishError, UnavailableError
from pilotfish.messages import (
    CloseSequence,
    EngineCommand,
    Event,
    OpenSequence,
    Predrafted,
    Proposal,
    Propose,
    SequenceError,
)
from pilotfish.types import Limits, LoadReport, ModelInfo, SequenceErrorCode

logger = logging.getLogger(__name__)


class TranslatingEngine:
    """An EngineClient: commands and events in the target's tokens, for an engine that knows its own alone. Must be
    made on a running loop.

    A sequence opens once its text is tokenised, in a thread; what is asked of it meanwhile waits.
    """

    def __init__(self, engine: EngineClient, families: Sequence[Family], vocabulary: str) -> None:
        """families: that of a peer that names no tokenizer first. vocabulary: as draft.vocabulary, but for `same`. The
        engine is owned."""
        self.model = families[0].model
        self._engine = engine
        self._families = {family.model.tokenizer_fingerprint: family for family in families}
        self._vocabulary = vocabulary
        self._family_of: dict[int, Family] = {}
        """Families of the sequences that are about to be opened."""
        self._own = set[int]()
        """Sequences of the drafter's own tokens."""
        self._sequences: dict[int, TranslatedSequence] = {}
        self._waiting: dict[int, list[EngineCommand]] = {}
        """What is asked of sequences that are being opened."""
        self._queue = EventQueue()
        self._tasks = {asyncio.create_task(self._pump())}
        pairs = [family.vocabularies for family in families if family.vocabularies is not None]
        engine.send([common for pair in pairs if (common := pair.common()) is not None])

    def model_for(self, tokenizer_fingerprint: str) -> ModelInfo | None:
        """See Families."""
        family = self._families.get(tokenizer_fingerprint)
        return None if family is None else family.model

    def assign(self, sequence_id: int, tokenizer_fingerprint: str) -> None:
        """See Families."""
        self._family_of[sequence_id] = self._families[tokenizer_fingerprint]

    @property
    def limits(self) -> Limits:
        return self._engine.limits

    @property
    def load(self) -> LoadReport:
        return self._engine.load

    def send(self, commands: Sequence[EngineCommand]) -> None:
        self._queue.raise_if_failed()
        ready: list[EngineCommand] = []
        for command in commands:
            if isinstance(command, OpenSequence):
                family = self._family_of.pop(command.sequence_id, self._families[self.model.tokenizer_fingerprint])
                if family.vocabularies is None:
                    self._own.add(command.sequence_id)
                    ready.append(command)
                    continue
                self._waiting[command.sequence_id] = []
                task = asyncio.create_task(self._open(command, family.vocabularies))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif (waiting := self._waiting.get(command.sequence_id)) is not None:
                waiting.append(command)
            else:
                ready.extend(self._translate(command))
        if ready:
            self._engine.send(ready)

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._sequences.clear()
        await self._engine.close()

    async def _open(self, command: OpenSequence, vocabularies: Vocabularies) -> None:
        sequence = await asyncio.to_thread(self._translated, command, vocabularies)
        waiting = self._waiting.pop(command.sequence_id)
        if any(isinstance(each, CloseSequence) for each in waiting):
            return
        if sequence.num_drafter_tokens >= self._engine.model.max_context_tokens:
            self._queue.put([self._too_long(command.sequence_id)])
            return
        self._sequences[command.sequence_id] = sequence
        with suppress(UnavailableError):  # `receive` reports it
            self._engine.send([sequence.opening(), *(own for each in waiting for own in self._translate(each))])

    def _translated(self, command: OpenSequence, vocabularies: Vocabularies) -> TranslatedSequence:
        prompt = vocabularies.drafter_prompt(command.prompt_token_ids)
        text = (*command.prompt_token_ids, *command.output_token_ids)
        method = method_for(self._vocabulary, vocabularies, text, prompt)
        return TranslatedSequence(command, prompt, vocabularies, method)

    def _translate(self, command: EngineCommand) -> Iterator[EngineCommand]:
        """Commands for the engine."""
        sequence = self._sequences.get(command.sequence_id)
        if isinstance(command, CloseSequence):
            self._sequences.pop(command.sequence_id, None)
            self._own.discard(command.sequence_id)
        elif command.sequence_id in self._own:
            pass
        elif isinstance(command, Propose):
            if sequence is None or not sequence.is_known(command):
                self._queue.put([SequenceError.unknown(command.sequence_id, command.base_length)])
                return
            asked, command = command, sequence.request(command, self.limits.max_draft_tokens)
            if command.base_length >= self._engine.model.max_context_tokens:
                self._queue.put([self._too_long(command.sequence_id, asked.base_length)])
                return
            if sequence.method is Method.INTERSECTION:
                yield sequence.use()
        yield command

    async def _pump(self) -> None:
        try:
            while True:
                events = await self._engine.receive()
                self._queue.put([own for event in events if (own := self._event(event)) is not None])
        except PilotfishError as error:
            self._queue.fail(error)

    def _event(self, event: Event) -> Event | None:
        """What the engine says, for who asked."""
        if event.sequence_id in self._own:
            return event
        sequence = self._sequences.get(event.sequence_id)
        if sequence is None:
            return None
        match event:
            case Proposal():
                return sequence.proposal(event)
            case Predrafted():
                return sequence.predrafted(event)
            case SequenceError():
                return sequence.error(event)
        return event

    def _too_long(self, sequence_id: int, base_length: int = 0) -> SequenceError:
        message = f"the draft model's context of {self._engine.model.max_context_tokens} tokens is full"
        return SequenceError(sequence_id, SequenceErrorCode.INVALID, message, base_length)


async def translated(engine: EngineClient, config: Config) -> EngineClient:
    """The engine of config.draft.model, for targets with the tokenizer of config.target.model or one of draft.targets:
    itself where that is its own. Raises ModelError kinds when a tokenizer cannot be had; the engine is closed then."""
    try:
        families = await asyncio.to_thread(lambda: list(families_of(engine.model, config)))
    except ModelError as error:
        await engine.close()
        raise ModelError(
            f"{error}. The draft service translates to the tokens of target.model ({config.target.model}) and "
            "draft.targets: set them as the targets have them, or draft.vocabulary to same"
        ) from error
    except BaseException:
        await engine.close()
        raise
    if len(families) == 1 and families[0].vocabularies is None:
        return engine
    for family in families:
        if (pair := family.vocabularies) is not None:
            logger.info(
                "the draft model has %d of the %d tokens of %s: its drafts are translated (draft.vocabulary %s)",
                len(pair.target_ids),
                pair.target.vocab_size,
                pair.target.folder.name,
                config.draft.vocabulary,
            )
    return TranslatingEngine(engine, families, config.draft.vocabulary)
