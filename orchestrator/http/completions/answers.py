"""Serving the answers of one request: each a sequence of its own, collected or streamed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import msgspec

from orchestrator.answers.chunk_writer import WRITES_PER_PASS, ChunkBuffer, write_chunks
from orchestrator.answers.loop_turns import LoopTurns
from orchestrator.answers.output import OutputChunk
from orchestrator.http.body import encode_body
from orchestrator.http.errors import ErrorBody
from orchestrator.http.exchange import Exchange, event_of
from orchestrator.inference import InferenceService
from orchestrator.prompt_scoring import PromptScores
from orchestrator.requests.caller import Caller
from orchestrator.requests.prompt import Prompt, TokenPrompt
from orchestrator.requests.request import GenerationOptions
from pilotfish.rpc.answer import Summary
from pilotfish.types import FinishReason

ResultT = TypeVar("ResultT")

_STARTS_PER_PASS = 16
"""Answers started in one pass of the event loop: a start takes 0.1 ms or more, and one request may want a hundred."""
_MAX_INLINE_LOGPROBS = 512
"""Log-probabilities written on the event loop; more would hold it for longer than a few milliseconds."""


@dataclass(frozen=True)
class Sample:
    """One answer that is wanted."""

    index: int
    """Index of the choice."""
    prompt_index: int
    """Index of the prompt in the request."""
    prompt: Prompt
    options: GenerationOptions
    is_prompt_only: bool = False
    """Whether only the prompt is wanted: one token is decoded and left out."""

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt's tokens, where it was tokenised beforehand."""
        return list(self.prompt.token_ids) if isinstance(self.prompt, TokenPrompt) else []


@dataclass(frozen=True)
class Finished:
    """One answer, whole."""

    sample: Sample
    chunk: OutputChunk
    report: Summary


class Document(Protocol):
    """Makes one document of all answers in one API's shape."""

    def document(self, answers: Sequence[Finished]) -> Any: ...


class ChoiceEvents(Protocol):
    """Makes the events of one choice in one API's shape."""

    def chunk(self, chunk: OutputChunk) -> bytes:
        """The chunk's events; empty if there is nothing to show yet."""

    def end(self, chunk: OutputChunk, report: Summary) -> bytes:
        """The last chunk's events."""

    def failed(self, error: ErrorBody) -> bytes:
        """The error event that replaces what would have come next."""
        return event_of(error)


class AnswerServer:
    """Drives the inference service. Used from one event loop."""

    def __init__(self, service: InferenceService, *, interval_tokens: int) -> None:
        """interval_tokens: as OrchestratorConfig.stream_interval_tokens."""
        self._service = service
        self._interval_tokens = interval_tokens
        self._turns = LoopTurns(WRITES_PER_PASS)
        self._starts = LoopTurns(_STARTS_PER_PASS)

    async def document(self, samples: Sequence[Sample], answer_format: Document, caller: Caller) -> bytes:
        """All answers, in the samples' order. Raises what `InferenceService.serving` does, for the first that fails."""
        scores = PromptScores()
        answers = await _together([self._collect(sample, caller, scores) for sample in samples])
        chunks = [answer.chunk for answer in answers]
        return await self._written(chunks, caller, lambda: encode_body(answer_format.document(answers)))

    async def stream(
        self, samples: Sequence[Sample], choices: Sequence[ChoiceEvents], exchange: Exchange
    ) -> list[Summary]:
        """Write all answers as they come; choices: for each sample. Raises as `document`, maybe within the stream."""
        pairs, scores = zip(samples, choices, strict=True), PromptScores()
        return await _together([self._stream(sample, choice, exchange, scores) for sample, choice in pairs])

    async def _collect(self, sample: Sample, caller: Caller, scores: PromptScores) -> Finished:
        await self._starts.turn()
        async with self._service.serving(sample.prompt, sample.options, caller, scores) as answer:
            buffer = ChunkBuffer(0)
            async with contextlib.aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    buffer.add(chunk)
            chunk, report = buffer.take(), answer.summary()
            return Finished(sample, *(_without_output(chunk, report) if sample.is_prompt_only else (chunk, report)))

    async def _stream(self, sample: Sample, choice: ChoiceEvents, exchange: Exchange, scores: PromptScores) -> Summary:
        last: OutputChunk | None = None

        async def write(chunk: OutputChunk) -> None:
            nonlocal last
            if chunk.finish_reason is not None:
                last = chunk  # it goes with the report
            elif data := await self._written([chunk], exchange.caller, lambda: choice.chunk(chunk)):
                await exchange.write_event(data)

        await self._starts.turn()
        async with self._service.serving(sample.prompt, sample.options, exchange.caller, scores) as answer:
            await write_chunks(answer, write, self._turns, interval_tokens=self._interval_tokens)
            report = answer.summary()
        assert last is not None
        if sample.is_prompt_only:
            last, report = _without_output(last, report)
        end = functools.partial(choice.end, last, report)
        await exchange.write_event(await self._written([last], exchange.caller, end))
        return report

    async def _written(self, chunks: Sequence[OutputChunk], caller: Caller, write: Callable[[], bytes]) -> bytes:
        """What is written of chunks: on a thread where it takes long."""
        num_logprobs = sum(_num_logprobs(chunk) for chunk in chunks)
        if num_logprobs <= _MAX_INLINE_LOGPROBS:
            return write()
        return await self._service.run_for(caller.client_id)(write)


def _num_logprobs(chunk: OutputChunk) -> int:
    """An estimate, from the number of likeliest tokens that the last token has."""
    scores = (*chunk.logprobs[-1:], *chunk.prompt_logprobs[-1:])
    num_each = 1 + max((len(score.top_token_ids) for score in scores if score is not None), default=0)
    return (len(chunk.logprobs) + len(chunk.prompt_logprobs)) * num_each


def _without_output(chunk: OutputChunk, report: Summary) -> tuple[OutputChunk, Summary]:
    """An answer of one token as if it had none."""
    chunk = msgspec.structs.replace(
        chunk, text="", token_ids=(), origins=(), logprobs=(), round_draft_tokens=(), finish_reason=FinishReason.LENGTH
    )
    return chunk, replace(report, num_output_tokens=0, finish_reason=FinishReason.LENGTH, stopped_by=None)


async def _together(work: Sequence[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """All results; the first failure ends the others."""
    if len(work) == 1:
        return [await work[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
