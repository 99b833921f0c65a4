"""POST /v1/chat/completions: the answer, whole and as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from orchestrator.http.answers import Finished, Sample
from orchestrator.http.envelope import Envelope, finish_reason_of, stop_reason_of
from orchestrator.http.exchange import event_of
from orchestrator.http.logprobs import ChatLogprobs, chat_logprobs
from orchestrator.http.speculation import ChoiceDetails, speculation_report, token_details
from orchestrator.http.usage import Usage, usage_of
from orchestrator.output import OutputChunk
from orchestrator.report import Report
from pilotfish.models.tokenizer import Tokenizer


class AssistantMessage(msgspec.Struct):
    """The answer's words."""

    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct, kw_only=True):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    speculation: ChoiceDetails


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The body of an answer that is not streamed."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class Delta(msgspec.Struct, omit_defaults=True):
    """What a message grows by."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """What one answer grows by."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET
    speculation: ChoiceDetails | msgspec.UnsetType = msgspec.UNSET


class ChatCompletionChunk(msgspec.Struct, kw_only=True):
    """An event of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    """null in all events but the last where it was asked for."""


class ChatFormat:
    """Makes the answers to one request."""

    def __init__(
        self, envelope: Envelope, tokenizer: Tokenizer, *, returns_tokens: bool = False, includes_usage: bool = False
    ) -> None:
        self.envelope = envelope
        self.tokenizer = tokenizer
        self.returns_tokens = returns_tokens
        self._usage: msgspec.UnsetType | None = None if includes_usage else msgspec.UNSET

    def document(self, answers: Sequence[Finished]) -> ChatCompletion:
        """All answers as one body."""
        envelope = self.envelope
        return ChatCompletion(
            id=envelope.answer_id,
            created=envelope.created,
            model=envelope.model_id,
            system_fingerprint=envelope.system_fingerprint,
            choices=[self._choice(answer) for answer in answers],
            usage=usage_of((answer.sample.prompt_index, answer.report) for answer in answers),
        )

    def choice_events(self, sample: Sample) -> ChatEvents:
        """Makes the events of one answer."""
        return ChatEvents(self, sample)

    def usage_event(self, usage: Usage) -> bytes:
        """The event that follows the answers."""
        return self.event([], usage)

    def event(self, choices: list[ChatChunkChoice], usage: Usage | None = None) -> bytes:
        """One event."""
        envelope = self.envelope
        chunk = ChatCompletionChunk(
            id=envelope.answer_id,
            created=envelope.created,
            model=envelope.model_id,
            system_fingerprint=envelope.system_fingerprint,
            choices=choices,
            usage=usage or self._usage,
        )
        return event_of(chunk)

    def _choice(self, answer: Finished) -> ChatChoice:
        chunk, report, options = answer.chunk, answer.report, answer.sample.options
        return ChatChoice(
            index=answer.sample.index,
            message=AssistantMessage("assistant", chunk.text),
            logprobs=chat_logprobs(chunk, self.tokenizer),
            finish_reason=finish_reason_of(report.finish_reason),
            stop_reason=stop_reason_of(report, options.stop, options.sampling.stop_token_ids),
            speculation=ChoiceDetails(
                token_details(chunk, self.tokenizer) if self.returns_tokens else None, speculation_report(report)
            ),
        )


class ChatEvents:
    """The events of one answer."""

    def __init__(self, chat: ChatFormat, sample: Sample) -> None:
        self._chat = chat
        self._sample = sample
        self._is_first = True

    def chunk(self, chunk: OutputChunk) -> bytes:
        """Empty while nothing can be shown."""
        if not chunk.text and not chunk.logprobs and not self._chat.returns_tokens and not self._is_first:
            return b""
        return self._opening() + self._chat.event([self._choice(chunk)])

    def end(self, chunk: OutputChunk, report: Report) -> bytes:
        """What is left of the text, then the event that tells how it ended."""
        has_news = bool(chunk.text or chunk.logprobs or self._chat.returns_tokens)
        text = self._chat.event([self._choice(chunk)]) if has_news else b""
        options = self._sample.options
        ending = ChatChunkChoice(
            index=self._sample.index,
            delta=Delta(),
            finish_reason=finish_reason_of(report.finish_reason),
            stop_reason=stop_reason_of(report, options.stop, options.sampling.stop_token_ids),
            speculation=ChoiceDetails(report=speculation_report(report)),
        )
        return self._opening() + text + self._chat.event([ending])

    def _opening(self) -> bytes:
        """Who speaks, before the first word."""
        if not self._is_first:
            return b""
        self._is_first = False
        return self._chat.event([ChatChunkChoice(index=self._sample.index, delta=Delta("assistant", ""))])

    def _choice(self, chunk: OutputChunk) -> ChatChunkChoice:
        chat = self._chat
        return ChatChunkChoice(
            index=self._sample.index,
            delta=Delta(content=chunk.text),
            logprobs=chat_logprobs(chunk, chat.tokenizer),
            speculation=ChoiceDetails(token_details(chunk, chat.tokenizer)) if chat.returns_tokens else msgspec.UNSET,
        )
