"""POST /v1/responses: the request, and the chat that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from orchestrator.http.completions.chat_request import (
    AllowedTool,
    AllowedTools,
    Arguments,
    CalledFunction,
    ChatCompletionRequest,
    ChatFields,
    ChosenFunction,
    ContentPart,
    FunctionDefinition,
    Message,
    MessageToolCall,
    ToolChoice,
    ToolDefinition,
    arguments_text,
    text_of,
)
from orchestrator.http.completions.request_fields import RequestFields
from orchestrator.http.completions.response_format import JsonSchemaFormat, ResponseFormat
from orchestrator.http.completions.sampling import SPECULATION_NAMES
from pilotfish.errors import InvalidRequestError

_PARAM_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("prompt", "messages"), "input"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens"),
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    **SPECULATION_NAMES,
}
LOGPROBS = "message.output_text.logprobs"
"""The value of `include` that is served."""


class InputPart(ContentPart, kw_only=True):
    """A part of a message as clients send it back."""

    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputItem(RequestFields, kw_only=True):
    """A message, a call that the model made, or what came of one. Clients send back what they were given."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Arguments = None
    output: str | list[InputPart] | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    summary: list[InputPart] | None = None
    """Stands for thoughts that are not there."""
    encrypted_content: str | None = None


class ResponseTool(FunctionDefinition, kw_only=True):
    """Something that the model may call."""

    served_type: ClassVar = "function"
    type: Literal["function"]


class ResponseAllowedTool(RequestFields, kw_only=True):
    """Something that the model may call."""

    served_type: ClassVar = "function"
    type: str
    name: str


class ResponseToolChoice(RequestFields, kw_only=True):
    """The call that is demanded, or the calls that are allowed."""

    type: str
    name: str = ""
    mode: Literal["auto", "required"] | None = None
    tools: list[ResponseAllowedTool] | None = None


class TextFormat(JsonSchemaFormat, kw_only=True):
    """What the answer must be."""

    type: str


class TextFields(RequestFields, kw_only=True):
    """How the answer is written."""

    format: TextFormat | None = None


class ReasoningFields(RequestFields, kw_only=True):
    """How much the model thinks."""

    effort: str | None = None
    summary: str | None = None
    """Repeated in the answer."""

    @property
    def repeated(self) -> dict[str, str | None]:
        """The fields as answers repeat them."""
        return {"effort": self.effort, "summary": self.summary}


class ResponsesRequest(ChatFields, kw_only=True):
    """The body. vLLM's fields of sampling are taken as well."""

    input: str | list[InputItem]
    instructions: str | None = None
    """A system message before the input."""
    max_output_tokens: int | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextFields | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    reasoning: ReasoningFields | None = None
    metadata: dict[str, str] | None = None
    """Repeated in the answer."""
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    prompt: Any = None

    @property
    def param_names(self) -> Mapping[str, str]:
        """Names of parameters that chats call otherwise, unless this request does as well."""
        return {name: own for name, own in _PARAM_NAMES.items() if getattr(self, name, None) is None}

    @property
    def has_logprobs(self) -> bool:
        """Whether the answer has log-probabilities of every output token."""
        return LOGPROBS in (self.include or ())

    @property
    def unserved_fields(self) -> dict[str, str]:
        """Fields that ask for what responses do not contain, each with the reason."""
        given = {
            "prompt_logprobs": self.prompt_logprobs is not None,
            "return_token_ids": self.return_token_ids,
            "speculation.return_tokens": self.speculation is not None and self.speculation.return_tokens,
            "stream_options": self.stream_options,
        }
        unserved = dict.fromkeys((name for name, value in given.items() if value), "responses do not have it")
        if not {LOGPROBS}.issuperset(self.include or ()):
            unserved["include"] = f"only {LOGPROBS} is served"
        if self.top_logprobs and not self.has_logprobs:
            unserved["top_logprobs"] = f"include has no {LOGPROBS}"
        if self.reasoning is not None and self.reasoning.summary:
            unserved["reasoning.summary"] = "thoughts are returned as they are"
        return unserved

    def as_chat(self) -> ChatCompletionRequest:
        """The request as a chat. Raises InvalidRequestError for what needs a memory, and for what is not text."""
        for name in ("previous_response_id", "conversation", "background", "prompt"):
            if getattr(self, name):
                raise InvalidRequestError(f"{name}: answers are not kept here; send all of it in input", param=name)
        if self.n not in (None, 1):
            raise InvalidRequestError(f"n is {self.n}; a response is one answer", param="n")
        given = {name: getattr(self, name) for name in ChatFields.__struct_fields__}
        return ChatCompletionRequest(
            **{
                **given,
                "messages": self._messages(),
                "max_completion_tokens": self.max_output_tokens,
                "logprobs": self.has_logprobs,
                "top_logprobs": self.top_logprobs if self.has_logprobs else None,
                "prompt_logprobs": None,  # see unserved_fields
                "tools": None if self.tools is None else [_tool(tool) for tool in self.tools],
                "tool_choice": _tool_choice(self.tool_choice),
                "parallel_tool_calls": self.parallel_tool_calls,
                "response_format": self._format(),
                "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
            }
        )

    def _messages(self) -> list[Message]:
        items = [InputItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        messages = [] if self.instructions is None else [Message(role="system", content=self.instructions)]
        thoughts = ""  # come before what they led to
        for index, item in enumerate(items):
            param = f"input[{index}]"
            if thoughts and item.type not in ("function_call", "reasoning") and item.role != "assistant":
                messages.append(_turn(thoughts))  # that were cut off
                thoughts = ""
            match item.type:
                case "message":
                    if item.role is None or (item.content is None and item.role != "assistant"):
                        raise InvalidRequestError(f"{param} has no role or no content", param=param)
                    content = text_of(item.content or "", f"{param}.content")
                    messages.append(Message(role=item.role, content=content, reasoning=thoughts))
                case "function_call":
                    if not messages or messages[-1].role != "assistant":
                        messages.append(_turn(""))
                    turn = messages[-1]  # what is said and called in a row
                    turn.tool_calls = [*(turn.tool_calls or ()), _call(item, param)]
                    turn.reasoning = _joined(turn.reasoning, thoughts)
                case "function_call_output":
                    if not item.call_id:
                        raise InvalidRequestError(f"{param} has no call_id", param=param)
                    content = text_of(item.output or "", f"{param}.output")
                    messages.append(Message(role="tool", content=content, tool_call_id=item.call_id))
                case "reasoning":
                    pass
                case _:
                    raise InvalidRequestError(f"{param}: items of type {item.type!r} are not served", param=param)
            if item.type == "reasoning":
                thoughts = _joined(thoughts, text_of(item.content or item.summary or "", f"{param}.content"))
            else:
                thoughts = ""
        return [*messages, _turn(thoughts)] if thoughts else messages

    def _format(self) -> ResponseFormat | None:
        wanted = None if self.text is None else self.text.format
        if wanted is None:
            return self.response_format
        if self.response_format is not None:
            raise InvalidRequestError("response_format and text.format exclude each other", param="response_format")
        if wanted.type != "json_schema":
            return ResponseFormat(type=wanted.type, schema=wanted.schema)
        return ResponseFormat(type=wanted.type, json_schema=JsonSchemaFormat(name=wanted.name, schema=wanted.schema))


def _turn(thoughts: str) -> Message:
    """The assistant's, without words."""
    return Message(role="assistant", content="", reasoning=thoughts)


def _joined(*thoughts: str | None) -> str:
    return "\n".join(filter(None, thoughts))


def _call(item: InputItem, param: str) -> MessageToolCall:
    if not item.call_id or not item.name:
        raise InvalidRequestError(f"{param} has no call_id or no name", param=param)
    arguments = arguments_text(item.arguments, f"{param}.arguments")
    return MessageToolCall(id=item.call_id, function=CalledFunction(name=item.name, arguments=arguments))


def _tool(tool: ResponseTool) -> ToolDefinition:
    function = FunctionDefinition(
        name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
    )
    return ToolDefinition(type=tool.type, function=function)


def _tool_choice(choice: str | ResponseToolChoice | None) -> str | ToolChoice | None:
    if isinstance(choice, ResponseToolChoice) and choice.tools is not None:
        tools = [AllowedTool(type=tool.type, function=ChosenFunction(name=tool.name)) for tool in choice.tools]
        return ToolChoice(type=choice.type, allowed_tools=AllowedTools(mode=choice.mode or "auto", tools=tools))
    if isinstance(choice, ResponseToolChoice):
        return ToolChoice(type=choice.type, function=ChosenFunction(name=choice.name))
    return choice
