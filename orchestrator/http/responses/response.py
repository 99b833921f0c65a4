"""POST /v1/responses: what an answer is made of."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from orchestrator.http.completions.logprobs import TokenLogprob
from orchestrator.http.completions.speculation import ChoiceDetails

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(msgspec.Struct):
    """What the message says."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []
    """Where they are included: of every output token, as in chats, those of thoughts and calls among them."""


class OutputMessage(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """The answer's words."""

    id: str
    role: Literal["assistant"] = "assistant"
    status: Status
    content: list[OutputText]


class FunctionCall(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """A function that the model calls."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str
    """A JSON object, as text."""


class ReasoningText(msgspec.Struct):
    """Thoughts."""

    text: str
    type: Literal["reasoning_text"] = "reasoning_text"


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before."""

    id: str
    status: Status
    summary: list[Any] = []
    content: list[ReasoningText]


WrittenItem = OutputMessage | ReasoningItem
OutputItem = WrittenItem | FunctionCall


class ResponseEvent(msgspec.Struct):
    """A server-sent event of a streamed answer."""

    event: str
    """OpenAI's name of what has been added."""
    data: str
    """JSON: the name as `type`, `sequence_number`, and what it is about."""


class InputDetails(msgspec.Struct):
    """Details of the input's tokens."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """Details of the output's tokens."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Token counts."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails


class IncompleteDetails(msgspec.Struct):
    """Why the answer ended early."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseError(msgspec.Struct):
    """Why there is no more of the answer."""

    code: str
    message: str


class Response(msgspec.Struct, kw_only=True):
    """The answer, with what was asked."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: dict[str, str | None]
    store: bool = False
    temperature: float | None
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_logprobs: int | None = None
    top_p: float | None
    truncation: Literal["disabled"] = "disabled"
    speculation: ChoiceDetails | msgspec.UnsetType = msgspec.UNSET
    """Pilotfish's own: how the answer came about."""
