"""POST /v1/chat/completions: makes the answer, whole and as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from orchestrator.answers.output import OutputChunk
from orchestrator.http.completions.answers import ChoiceEvents, Finished, Sample
from orchestrator.http.completions.chat_response import (
    AssistantMessage,
    CallFunction,
    CallItem,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    Delta,
)
from orchestrator.http.completions.common_format import CommonFormat
from orchestrator.http.completions.envelope import finish_reason_of, stop_reason_of
from orchestrator.http.completions.logprobs import chat_logprobs
from orchestrator.http.completions.speculation import ChoiceDetails, speculation_report
from orchestrator.http.completions.usage import RunningUsage, Usage, usage_of, with_reasoning
from orchestrator.http.exchange import event_of
from orchestrator.requests.reasoning import AnswerParser, MakeParser
from orchestrator.requests.tools.tool_calls import ToolAnswer, joined_calls
from orchestrator.requests.tools.tool_use import NO_TOOLS, ToolUse
from pilotfish.chat import ToolCall
from pilotfish.rpc.answer import Summary
from pilotfish.types import FinishReason


@dataclass(kw_only=True)
class ChatFormat(CommonFormat):
    """Makes the answers to one request."""

    tools: ToolUse = NO_TOOLS
    reasoning: MakeParser = lambda: None
    includes_reasoning: bool = True
    echoed: str = ""
    """What the text begins with."""
    _parsers: list[AnswerParser] = field(default_factory=list, init=False)

    def parser(self) -> AnswerParser:
        """A parser of one answer's text."""
        self._parsers.append(AnswerParser(self.reasoning(), self.tools.parser(), self.tools.max_calls))
        return self._parsers[-1]

    def reasoning_of(self, answer: ToolAnswer) -> str:
        """The answer's thoughts, where they are wanted."""
        return answer.reasoning if self.includes_reasoning else ""

    def document(self, answers: Sequence[Finished]) -> ChatCompletion:
        first = answers[0]
        return ChatCompletion(
            **msgspec.structs.asdict(self.envelope),
            choices=[self._choice(answer) for answer in answers],
            prompt_token_ids=self.prompt_token_ids(first.sample),
            prompt_logprobs=self.prompt_logprobs(first),
            usage=self._with_reasoning(usage_of((answer.sample.prompt_index, answer.report) for answer in answers)),
        )

    def choice_events(self, sample: Sample) -> ChatEvents:
        return ChatEvents(self, sample)

    def usage_event(self, usage: Usage) -> bytes:
        """The event that follows the answers."""
        return self.event([], self._with_reasoning(usage))

    def _with_reasoning(self, usage: Usage) -> Usage:
        return with_reasoning(usage, (parser.num_reasoning_tokens for parser in self._parsers))

    def event(
        self,
        choices: list[ChatChunkChoice],
        usage: Usage | None = None,
        prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET,
    ) -> bytes:
        chunk = ChatCompletionChunk(
            **msgspec.structs.asdict(self.envelope),
            choices=choices,
            prompt_token_ids=prompt_token_ids,
            usage=usage or self.no_usage,
        )
        return event_of(chunk)

    def finish_reason(self, report: Summary, *, has_calls: bool) -> str:
        """OpenAI's finish reason: an answer of calls ends for them, unless the request named the function."""
        if has_calls and report.finish_reason is FinishReason.STOP and not self.tools.is_named:
            return "tool_calls"
        return finish_reason_of(report.finish_reason)

    def _message(self, chunk: OutputChunk) -> AssistantMessage:
        answer = self.parser().finish(chunk.text, chunk.token_ids)
        content = self.echoed + answer.content
        message = AssistantMessage("assistant", content)
        if answer.calls:
            message.tool_calls = [_call_item(call) for call in joined_calls(answer.calls)]
        if answer.calls or answer.reasoning:
            message.content = content or None
        if reasoning := self.reasoning_of(answer):
            message.reasoning = message.reasoning_content = reasoning
        return message

    def _choice(self, answer: Finished) -> ChatChoice:
        chunk, report = answer.chunk, answer.report
        message = self._message(chunk)
        return ChatChoice(
            index=answer.sample.index,
            message=message,
            logprobs=chat_logprobs(chunk, self.tokenizer),
            finish_reason=self.finish_reason(report, has_calls=bool(message.tool_calls)),
            stop_reason=stop_reason_of(report, answer.sample.options),
            token_ids=self.token_ids(chunk),
            speculation=ChoiceDetails(self.token_details(chunk), speculation_report(report)),
        )


class ChatEvents(ChoiceEvents):
    def __init__(self, chat: ChatFormat, sample: Sample) -> None:
        self._chat = chat
        self._sample = sample
        self._is_first = True
        self._parser = chat.parser()
        self._num_calls = 0
        self._usage = RunningUsage(len(sample.prompt_token_ids), is_shown=chat.has_running_usage)

    def chunk(self, chunk: OutputChunk) -> bytes:
        """Empty while nothing can be shown."""
        answer = self._parser.push(chunk.text, chunk.token_ids)
        opening = self._opening()
        self._usage.num_output_tokens += len(chunk.token_ids)
        return opening + (self._news(chunk, answer) if self._has_news(chunk, answer) else b"")

    def end(self, chunk: OutputChunk, report: Summary) -> bytes:
        """What is left of the text, then the event with the finish reason."""
        answer = self._parser.finish(chunk.text, chunk.token_ids)
        opening = self._opening()
        self._usage.num_output_tokens += len(chunk.token_ids)
        news = self._news(chunk, answer) if self._has_news(chunk, answer) else b""
        ending = ChatChunkChoice(
            index=self._sample.index,
            delta=Delta(),
            finish_reason=self._chat.finish_reason(report, has_calls=self._num_calls > 0),
            stop_reason=stop_reason_of(report, self._sample.options),
            speculation=ChoiceDetails(report=speculation_report(report)),
        )
        return opening + news + self._event(ending)

    def _has_news(self, chunk: OutputChunk, answer: ToolAnswer) -> bool:
        news = answer.content or answer.calls or self._chat.reasoning_of(answer) or chunk.logprobs
        return bool(news or self._chat.returns_tokens or self._chat.returns_token_ids)

    def _news(self, chunk: OutputChunk, answer: ToolAnswer) -> bytes:
        """An event for each piece of a call, as clients may read the first of an event alone."""
        items = [self._call_piece(piece) for piece in answer.calls]
        first = self._event(self._choice(chunk, answer, items[:1]))
        return first + b"".join(
            self._event(ChatChunkChoice(index=self._sample.index, delta=Delta(tool_calls=[item]))) for item in items[1:]
        )

    def _call_piece(self, piece: ToolCall) -> CallItem:
        self._num_calls += bool(piece.call_id)
        return _call_item(piece, self._num_calls - 1)

    def _event(self, choice: ChatChunkChoice) -> bytes:
        return self._chat.event([choice], self._usage.now())

    def _opening(self) -> bytes:
        """Who speaks, before the first word, and what is echoed."""
        if not self._is_first:
            return b""
        self._is_first = False
        choice = ChatChunkChoice(index=self._sample.index, delta=Delta("assistant", self._chat.echoed))
        return self._chat.event([choice], self._usage.now(), self._chat.prompt_token_ids(self._sample))

    def _choice(self, chunk: OutputChunk, answer: ToolAnswer, items: list[CallItem]) -> ChatChunkChoice:
        chat, content = self._chat, answer.content
        reasoning = chat.reasoning_of(answer) or None
        content_or_none = None if (items or answer.reasoning) and not content else content
        return ChatChunkChoice(
            index=self._sample.index,
            delta=Delta(
                content=content_or_none, tool_calls=items or None, reasoning=reasoning, reasoning_content=reasoning
            ),
            logprobs=chat_logprobs(chunk, chat.tokenizer),
            token_ids=chat.token_ids(chunk),
            speculation=chat.running_details(chunk),
        )


def _call_item(call: ToolCall, index: int | None = None) -> CallItem:
    """index: the streamed piece's, which has the call's name and id if it is the first."""
    if not call.call_id:
        return CallItem(msgspec.UNSET, CallFunction(msgspec.UNSET, call.arguments), index)
    return CallItem(call.call_id, CallFunction(call.name, call.arguments), index, "function")
