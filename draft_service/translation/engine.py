"""A drafter of another vocabulary as an engine of the target's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

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
from pilotfish.models.store.pull import tokenizer_folder
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import Limits, LoadReport, ModelInfo, SequenceErrorCode

logger = logging.getLogger(__name__)

_VOCABULARY = 1
"""What the engine calls the tokens that both have."""


class TranslatingEngine:
    """An EngineClient: commands and events in the target's tokens, for an engine that knows its own alone. Must be
    made on a running loop.

    A sequence opens once its text is tokenised, in a thread; what is asked of it meanwhile waits.
    """

    def __init__(self, engine: EngineClient, vocabularies: Vocabularies, vocabulary: str) -> None:
        """vocabulary: as draft.vocabulary, but for `same`. The engine is owned."""
        target = vocabularies.target
        self.model: ModelInfo = msgspec.structs.replace(
            engine.model,
            tokenizer_fingerprint=target.fingerprint,
            vocab_size=target.vocab_size,
            # Its own is in tokens of its own: see _translate.
            max_context_tokens=target.max_context_tokens,
            tokenizer_path=str(target.folder),
        )
        self._engine = engine
        self._vocabularies = vocabularies
        self._vocabulary = vocabulary
        self._sequences: dict[int, TranslatedSequence] = {}
        self._waiting: dict[int, list[EngineCommand]] = {}
        """What is asked of sequences that are being opened."""
        self._queue = EventQueue()
        self._tasks = {asyncio.create_task(self._pump())}
        if (common := vocabularies.common(_VOCABULARY)) is not None:
            engine.send([common])

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
                self._waiting[command.sequence_id] = []
                task = asyncio.create_task(self._open(command))
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

    async def _open(self, command: OpenSequence) -> None:
        sequence = await asyncio.to_thread(self._translated, command)
        waiting = self._waiting.pop(command.sequence_id)
        if any(isinstance(each, CloseSequence) for each in waiting):
            return
        if sequence.num_drafter_tokens >= self._engine.model.max_context_tokens:
            self._queue.put([self._too_long(command.sequence_id)])
            return
        self._sequences[command.sequence_id] = sequence
        with suppress(UnavailableError):  # `receive` tells
            self._engine.send([sequence.opening(), *(own for each in waiting for own in self._translate(each))])

    def _translated(self, command: OpenSequence) -> TranslatedSequence:
        prompt = self._vocabularies.drafter_prompt(command.prompt_token_ids)
        text = (*command.prompt_token_ids, *command.output_token_ids)
        method = method_for(self._vocabulary, self._vocabularies, text, prompt)
        return TranslatedSequence(command, prompt, self._vocabularies, method)

    def _translate(self, command: EngineCommand) -> Iterator[EngineCommand]:
        """What the engine is told."""
        sequence = self._sequences.get(command.sequence_id)
        if isinstance(command, CloseSequence):
            self._sequences.pop(command.sequence_id, None)
        elif isinstance(command, Propose):
            if sequence is None or not sequence.is_known(command):
                self._queue.put([SequenceError.unknown(command.sequence_id, command.base_length)])
                return
            asked, command = command, sequence.request(command, self.limits.max_draft_tokens)
            if command.base_length >= self._engine.model.max_context_tokens:
                self._queue.put([self._too_long(command.sequence_id, asked.base_length)])
                return
            if sequence.method is Method.INTERSECTION:
                yield sequence.use(_VOCABULARY)
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
    """The engine of config.draft.model, for targets with the tokenizer of config.target.model: itself where that is its
    own. Raises ModelError kinds when the target's tokenizer cannot be had; the engine is closed then."""
    try:
        vocabularies = await asyncio.to_thread(_vocabularies, engine.model, config)
    except ModelError as error:
        await engine.close()
        raise ModelError(
            f"{error}. The draft service translates to the tokens of target.model ({config.target.model}): set it as "
            "the target has it, or draft.vocabulary to same"
        ) from error
    except BaseException:
        await engine.close()
        raise
    if vocabularies is None:
        return engine
    num_common, num_tokens = len(vocabularies.target_ids), vocabularies.target.vocab_size
    logger.info(
        "the draft model has %d of the %d tokens of %s: its drafts are translated (draft.vocabulary %s)",
        num_common,
        num_tokens,
        config.target.model,
        config.draft.vocabulary,
    )
    return TranslatingEngine(engine, vocabularies, config.draft.vocabulary)


def _vocabularies(drafter: ModelInfo, config: Config) -> Vocabularies | None:
    """None: both have the same."""
    folder = tokenizer_folder(config.target.model, config.cache_dir)
    if tokenizer_fingerprint(folder) == drafter.tokenizer_fingerprint:
        return None
    return Vocabularies(Tokenizer.load(folder), Tokenizer.load(drafter.tokenizer_path))
