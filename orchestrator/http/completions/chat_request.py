"""POST /v1/chat/completions: the request."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from orchestrator.http.body import encode_body
from orchestrator.http.completions.request_fields import RequestFields
from orchestrator.http.completions.sampling import GenerationFields
from orchestrator.requests.prompt import ChatPrompt
from orchestrator.requests.request import check_number
from orchestrator.requests.tools.tool_use import ToolUse, tool_use
from pilotfish.chat import ROLES, ChatMessage, ToolCall
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.chat_template import TemplateOptions
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.structured.bounds import check_json
from pilotfish.types import MAX_LOGPROBS

_TEXT_PARTS = frozenset(("text", "input_text", "output_text", "reasoning_text", "summary_text", "refusal"))
"""Types of parts that are text, in chats and in responses."""
_READS_NAMES = re.compile(r"""\bm(?:sg|essage)?(?:\.name\b|\[["']name|\.get\(["']name)""")
"""How chat templates read a message's name."""
MAX_TEMPLATE_FIELDS = 64
"""The most fields in one request's chat_template_kwargs."""

Role = Literal["system", "developer", "user", "assistant", "tool"]


class ContentPart(RequestFields, kw_only=True):
    """A part of a message; only text can be served, that of refusals too."""

    type: str
    text: str | None = None
    refusal: str | None = None


Arguments = str | dict[str, Any] | None
"""A call's: a JSON object as text, or as some clients send it back, as it is; none where there are none."""


class CalledFunction(RequestFields, kw_only=True):
    """Which function, and with what."""

    name: str
    arguments: Arguments = None


class MessageToolCall(RequestFields, kw_only=True):
    """A call that the assistant made."""

    id: str | None = None
    function: CalledFunction
    type: Literal["function"] = "function"


class Message(RequestFields, kw_only=True):
    """A turn. Clients send back what they were given, by us or by others."""

    role: Role
    content: str | list[ContentPart] | None = None
    tool_calls: list[MessageToolCall] | None = None
    """The assistant's calls."""
    tool_call_id: str | None = None
    """A tool message's: the call that it is the result of."""
    reasoning: str | None = None
    reasoning_content: str | None = None
    """`reasoning`, by its older name."""
    refusal: str | None = None
    """Stands for the content that is not there."""
    name: str | None = None
    """For chat templates that tell those in one role apart, or results by their tools."""


class FunctionDefinition(RequestFields, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of its arguments."""
    strict: bool | None = None
    """The schema is held to wherever a call is demanded."""


class ToolDefinition(RequestFields, kw_only=True):
    """Something that the model may call."""

    served_type: ClassVar = "function"
    type: Literal["function"]
    function: FunctionDefinition


class ChosenFunction(RequestFields, kw_only=True):
    """Which one."""

    name: str


class AllowedTool(RequestFields, kw_only=True):
    """One of them."""

    served_type: ClassVar = "function"
    type: str
    function: ChosenFunction


class AllowedTools(RequestFields, kw_only=True):
    """The tools that may be called, and whether one has to be."""

    mode: Literal["auto", "required"]
    tools: list[AllowedTool]


class ToolChoice(RequestFields, kw_only=True):
    """The call that is demanded, or the calls that are allowed."""

    type: str
    function: ChosenFunction | None = None
    allowed_tools: AllowedTools | None = None


class ChatFields(GenerationFields, kw_only=True):
    """Fields of both APIs that answer chats."""

    add_generation_prompt: bool | None = None
    """None: unless continue_final_message is set."""
    continue_final_message: bool | None = False
    chat_template_kwargs: dict[str, Any] | None = None
    """What the chat template may read."""
    documents: list[dict[str, Any]] | None = None
    """One of chat_template_kwargs."""
    include_reasoning: bool | None = True
    """Thoughts are part of the answer."""
    separate_reasoning: bool | None = True
    """Thoughts are separated from the content, where the model is known to think."""


class ChatCompletionRequest(ChatFields, kw_only=True):
    """The body."""

    messages: list[Message]
    echo: bool | None = False
    """The answer begins with the last message, if that is the assistant's."""
    max_completion_tokens: int | None = None
    """The newer name of max_tokens."""
    logprobs: bool | None = False
    top_logprobs: int | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    """One of chat_template_kwargs."""

    @property
    def num_logprobs(self) -> int | None:
        """The number as SamplingParams has it. Raises InvalidRequestError."""
        if self.top_logprobs is None:
            return 0 if self.logprobs else None
        if not self.logprobs:
            if self.top_logprobs == 0:  # some clients always send it
                return None
            raise InvalidRequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
        check_number("top_logprobs", self.top_logprobs, 0, MAX_LOGPROBS)
        return self.top_logprobs

    def max_output_tokens(self, default: int) -> int:
        """How long the answer may be. Raises InvalidRequestError."""
        for name in ("max_completion_tokens", "max_tokens"):
            value: int | None = getattr(self, name)
            if value is not None:
                check_number(name, value, 1)
                return value
        return default

    def tool_use(self) -> ToolUse:
        """What it says about tools. Raises InvalidRequestError."""
        tools = None if self.tools is None else [tool.as_given() for tool in self.tools]
        choice = self.tool_choice.as_given() if isinstance(self.tool_choice, ToolChoice) else self.tool_choice
        return tool_use(tools, choice, self.parallel_tool_calls)

    def prompt(self, tools: ToolUse) -> ChatPrompt:
        """The conversation. Raises InvalidRequestError for what is not text."""
        return dataclasses.replace(chat_prompt(self.messages, tools), options=self._template_options())

    @property
    def echoed(self) -> str:
        """What the answer's text begins with."""
        last = self.messages[-1]
        return text_of(last.content, "messages") if self.echo and last.role == "assistant" else ""

    def unread_fields(self, tokenizer: Tokenizer) -> dict[str, str]:
        """Fields for the chat template that it does not read, each with that reason."""
        known = tokenizer.template_variables
        names = [f"chat_template_kwargs.{name}" for name in self.chat_template_kwargs or () if name not in known]
        names += [name for name in self._own_variables if name not in known]
        if not any(name in tokenizer.chat_template for name in ("reasoning_content", "message.thinking")):
            names += self._given_in_messages("reasoning", "reasoning_content")
        if not _READS_NAMES.search(tokenizer.chat_template):
            names += self._given_in_messages("name")
        return dict.fromkeys(names, "the chat template does not read it")

    def _given_in_messages(self, *names: str) -> list[str]:
        """Those of the fields that a message has."""
        return [f"messages.{name}" for name in names if any(getattr(message, name) for message in self.messages)]

    def _template_options(self) -> TemplateOptions:
        if len(self.chat_template_kwargs or ()) > MAX_TEMPLATE_FIELDS:
            raise InvalidRequestError(
                f"chat_template_kwargs may have {MAX_TEMPLATE_FIELDS} keys at most", param="chat_template_kwargs"
            )
        is_continued = bool(self.continue_final_message)
        if is_continued and self.add_generation_prompt:
            raise InvalidRequestError(
                "continue_final_message and add_generation_prompt exclude each other", param="continue_final_message"
            )
        adds_prompt = not is_continued if self.add_generation_prompt is None else self.add_generation_prompt
        variables = {**self._own_variables, **(self.chat_template_kwargs or {})}
        return TemplateOptions(adds_prompt, is_continued, json.loads(json.dumps(variables, default=float)))

    @property
    def _own_variables(self) -> dict[str, Any]:
        """What the chat template may read of the request's own fields."""
        values = {name: getattr(self, name) for name in ("reasoning_effort", "documents")}
        return {name: value for name, value in values.items() if value is not None}


def chat_prompt(messages: list[Message], tools: ToolUse) -> ChatPrompt:
    """Raises InvalidRequestError for what is not text."""
    if not messages:
        raise InvalidRequestError("messages is empty; it must have at least one message", param="messages")
    return ChatPrompt(tuple(_chat_message(index, message) for index, message in enumerate(messages)), tools.offered)


def _chat_message(index: int, message: Message) -> ChatMessage:
    param = f"messages[{index}]"
    role = ROLES[message.role]
    calls = tuple(_tool_call(call, f"{param}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls or ()))
    if message.content is None and role not in ("assistant", "tool"):
        raise InvalidRequestError(f"{param}.content is missing", param=f"{param}.content")
    reasoning = message.reasoning or message.reasoning_content or ""
    content = text_of(message.content or message.refusal, f"{param}.content")
    return ChatMessage(role, content, calls, message.tool_call_id or "", reasoning, message.name or "")


def _tool_call(call: MessageToolCall, param: str) -> ToolCall:
    arguments = arguments_text(call.function.arguments, f"{param}.function.arguments")
    return ToolCall(call.id or "", call.function.name, arguments)


def arguments_text(arguments: Arguments, param: str) -> str:
    """What the model had written. Raises InvalidRequestError for what is nested too deep."""
    if isinstance(arguments, dict):
        return msgspec.json.format(encode_body(arguments), indent=0).decode()  # spaced as models write it
    text = arguments or "{}"  # cut off before them
    check_json(text.encode(), "the JSON in arguments", param)
    return text


def text_of(content: str | Sequence[ContentPart] | None, param: str) -> str:
    """Raises InvalidRequestError for what is not text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in _TEXT_PARTS or text is None:
            raise InvalidRequestError(f"{param}: only parts of type text are served, not {part.type!r}", param=param)
        texts.append(text)
    # Parts are paragraphs, not pieces of a word: joined by nothing, two documents would run into one line.
    return "\n".join(texts)
