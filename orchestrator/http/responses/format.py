"""POST /v1/responses: makes the answer, whole and as events."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from orchestrator.answers.output import OutputChunk
from orchestrator.http.completions.answers import ChoiceEvents, Finished, Sample
from orchestrator.http.completions.envelope import Envelope
from orchestrator.http.completions.logprobs import TokenLogprob, chat_logprobs
from orchestrator.http.completions.speculation import ChoiceDetails, speculation_report
from orchestrator.http.completions.usage import Usage, usage_of, with_reasoning
from orchestrator.http.errors import INTERNAL_CODE, ApiError, ErrorBody
from orchestrator.http.exchange import event_of
from orchestrator.http.responses.request import ReasoningFields, ResponsesRequest
from orchestrator.http.responses.response import (
    FunctionCall,
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
    WrittenItem,
)
from orchestrator.requests.reasoning import AnswerParser, MakeParser
from orchestrator.requests.tools.tool_calls import ToolAnswer
from orchestrator.requests.tools.tool_use import ToolUse
from pilotfish.chat import ToolCall
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.answer import Summary
from pilotfish.types import FinishReason


@dataclass(frozen=True)
class ResponsesFormat:
    """Makes the answer to one request."""

    envelope: Envelope
    request: ResponsesRequest
    tools: ToolUse
    reasoning: MakeParser
    tokenizer: Tokenizer

    def document(self, answers: Sequence[Finished]) -> Response:
        (answer,) = answers
        events = self.choice_events(answer.sample)
        events.end(answer.chunk, answer.report)
        return self.response(events.items, answer.report, events.parser.num_reasoning_tokens)

    def choice_events(self, sample: Sample) -> ResponseEvents:  # noqa: ARG002 -- there is one
        return ResponseEvents(self, AnswerParser(self.reasoning(), self.tools.parser(), self.tools.max_calls))

    def usage_event(self, usage: Usage) -> bytes:  # noqa: ARG002
        """Nothing: the last event has the usage."""
        return b""

    def response(
        self,
        items: Sequence[OutputItem],
        report: Summary | None = None,
        num_reasoning_tokens: int | None = None,
        *,
        error: ApiError | None = None,
    ) -> Response:
        """report: None while the answer is being made, and where it failed with `error`."""
        request = self.request
        ended: dict[str, Any] = {"status": "in_progress"}
        if error is not None:
            ended = {"status": "failed", "error": ResponseError(_code_of(error), error.message)}
        elif report is not None:
            status = _status(report)
            ended = {
                "status": status,
                "incomplete_details": IncompleteDetails() if status == "incomplete" else None,
                "usage": _usage(with_reasoning(usage_of([(0, report)]), [num_reasoning_tokens])),
                "speculation": ChoiceDetails(report=speculation_report(report)),
            }
        choice = request.tool_choice or "auto"
        return Response(
            id=self.envelope.id,
            created_at=self.envelope.created,
            model=self.envelope.model,
            output=list(items),
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            metadata=request.metadata or {},
            parallel_tool_calls=request.parallel_tool_calls is not False,
            temperature=request.temperature,
            reasoning=(request.reasoning or ReasoningFields()).repeated,
            text={"format": {"type": "text"}, **({} if request.text is None else request.text.as_given())},
            tool_choice=choice if isinstance(choice, str) else choice.as_given(),
            tools=[tool.as_given() for tool in request.tools or ()],
            top_logprobs=request.top_logprobs,
            top_p=request.top_p,
            **ended,
        )


class ResponseEvents(ChoiceEvents):
    """The events of one answer, and the items of its output so far."""

    def __init__(self, answer_format: ResponsesFormat, parser: AnswerParser) -> None:
        self._format = answer_format
        self._includes_reasoning = answer_format.request.include_reasoning is not False
        self.parser = parser
        self._num_events = 0
        self.items: list[OutputItem] = []
        self._written: OutputItem | None = None
        """The item that is being written: the last one; None: none."""
        self._logprobs: list[TokenLogprob] = []
        """Log-probabilities of the tokens since the message's last words."""

    def chunk(self, chunk: OutputChunk) -> bytes:
        """Empty while nothing can be shown."""
        if logprobs := chat_logprobs(chunk, self._format.tokenizer) if self._format.request.has_logprobs else None:
            self._logprobs += logprobs.content
        return self._begin() + self._add(self.parser.push(chunk.text, chunk.token_ids))

    def end(self, chunk: OutputChunk, report: Summary) -> bytes:
        """What is left of the text, then the whole answer."""
        data = self.chunk(chunk) + self._add(self.parser.finish())
        if not self.items:
            data += self._open_written(OutputMessage)  # an answer of no words is one
        messages = [item for item in self.items if isinstance(item, OutputMessage)]
        if messages:
            messages[-1].content[0].logprobs += self._logprobs  # of what has no words, such as the end
        status = _status(report)
        data += self._close_written(status)
        response = self._format.response(self.items, report, self.parser.num_reasoning_tokens)
        return data + self._event(f"response.{status}", response=response)

    def failed(self, error: ErrorBody) -> bytes:
        """The answer as far as it came, and why it ends there."""
        if self._written is not None:
            self._written.status = "incomplete"
        return self._event("response.failed", response=self._format.response(self.items, error=error.error))

    def _begin(self) -> bytes:
        if self._num_events:
            return b""
        response = self._format.response(())
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _add(self, answer: ToolAnswer) -> bytes:
        # What a call goes on with comes before content: that stands behind its end.
        num_going_on = next((at for at, piece in enumerate(answer.calls) if piece.call_id), len(answer.calls))
        parts = [self._write(ReasoningItem, answer.reasoning if self._includes_reasoning else "")]
        parts += map(self._write_call, answer.calls[:num_going_on])
        parts.append(self._write(OutputMessage, answer.content))
        parts += map(self._write_call, answer.calls[num_going_on:])
        return b"".join(parts)

    def _write(self, kind: type[WrittenItem], text: str) -> bytes:
        if not text:
            return b""
        data = self._open_written(kind)
        assert isinstance(self._written, WrittenItem)
        part = self._written.content[0]
        part.text += text
        logprobs: dict[str, Any] = {}
        if isinstance(part, OutputText):
            logprobs["logprobs"], self._logprobs = self._logprobs, []
            part.logprobs += logprobs["logprobs"]
        return data + self._item_event(f"response.{part.type}.delta", content_index=0, delta=text, **logprobs)

    def _open_written(self, kind: type[WrittenItem]) -> bytes:
        if isinstance(self._written, kind):
            return b""
        data = self._close_written()
        item_id = secrets.token_hex(12)
        item: WrittenItem
        if kind is OutputMessage:
            item = OutputMessage(id=f"msg_{item_id}", status="in_progress", content=[OutputText("")])
        else:
            item = ReasoningItem(id=f"rs_{item_id}", status="in_progress", content=[ReasoningText("")])
        data += self._open(msgspec.structs.replace(item, content=[]))  # its part has an event of its own
        self._written = self.items[-1] = item
        return data + self._item_event("response.content_part.added", content_index=0, part=item.content[0])

    def _close_written(self, status: Status = "completed") -> bytes:
        if self._written is None:
            return b""
        item, self._written = self._written, None
        item.status = status
        if isinstance(item, FunctionCall):
            data = self._item_event("response.function_call_arguments.done", name=item.name, arguments=item.arguments)
        else:
            part = item.content[0]
            logprobs = {"logprobs": part.logprobs} if isinstance(part, OutputText) else {}
            data = self._item_event(f"response.{part.type}.done", content_index=0, text=part.text, **logprobs)
            data += self._item_event("response.content_part.done", content_index=0, part=part)
        return data + self._event("response.output_item.done", output_index=len(self.items) - 1, item=item)

    def _write_call(self, piece: ToolCall) -> bytes:
        if piece.call_id:
            data, item_id = self._close_written(), f"fc_{secrets.token_hex(12)}"
            self._written = FunctionCall(
                id=item_id, status="in_progress", call_id=piece.call_id, name=piece.name, arguments=""
            )
            return data + self._open(self._written)
        assert isinstance(self._written, FunctionCall)
        self._written.arguments += piece.arguments
        return self._item_event("response.function_call_arguments.delta", delta=piece.arguments)

    def _open(self, item: OutputItem) -> bytes:
        self.items.append(item)
        return self._event("response.output_item.added", output_index=len(self.items) - 1, item=item)

    def _item_event(self, name: str, /, **fields: Any) -> bytes:
        """About the last item."""
        return self._event(name, item_id=self.items[-1].id, output_index=len(self.items) - 1, **fields)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        body = {"type": name, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return event_of(body, name)


def _status(report: Summary) -> Status:
    return "incomplete" if report.finish_reason is FinishReason.LENGTH else "completed"


def _code_of(error: ApiError) -> str:
    """OpenAI's for a fault of the server; else ours, as in answers that are not streamed."""
    return error.type if error.code in (None, INTERNAL_CODE) else error.code


def _usage(usage: Usage) -> ResponseUsage:
    details, thoughts = usage.prompt_tokens_details, usage.completion_tokens_details
    return ResponseUsage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        InputDetails(0 if details is None else details.cached_tokens),
        OutputDetails(0 if thoughts is None else thoughts.reasoning_tokens),
    )
