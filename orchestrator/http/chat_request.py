"""POST /v1/chat/completions: the request."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from orchestrator.http.sampling import GenerationFields
from orchestrator.prompt import ChatPrompt
from pilotfish.errors import InvalidRequestError
from pilotfish.types import MAX_LOGPROBS, ChatMessage

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class ContentPart(msgspec.Struct, kw_only=True):
    """A part of a message; only text can be served."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """A turn. Unknown fields are passed over: clients send back what they were given."""

    role: Role
    content: str | list[ContentPart] | None = None


class ChatCompletionRequest(GenerationFields, kw_only=True, forbid_unknown_fields=True):
    """The body."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    """The newer name of max_tokens."""
    logprobs: bool | None = False
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    @property
    def num_logprobs(self) -> int | None:
        """As SamplingParams has it. Raises InvalidRequestError."""
        if self.top_logprobs is None:
            return 0 if self.logprobs else None
        if not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
        if not 0 <= self.top_logprobs <= MAX_LOGPROBS:
            raise InvalidRequestError(
                f"top_logprobs is {self.top_logprobs}; it must be between 0 and {MAX_LOGPROBS}", param="top_logprobs"
            )
        return self.top_logprobs

    def max_output_tokens(self, default: int) -> int:
        """How long the answer may be. Raises InvalidRequestError."""
        for name in ("max_completion_tokens", "max_tokens"):
            value: int | None = getattr(self, name)
            if value is not None:
                if value < 1:
                    raise InvalidRequestError(f"{name} is {value}; it must be at least 1", param=name)
                return value
        return default

    def prompt(self) -> ChatPrompt:
        """The conversation. Raises InvalidRequestError for what is not text."""
        return chat_prompt(self.messages)

    def check_supported(self) -> None:
        """Raises InvalidRequestError for what cannot be served yet."""
        if self.response_format is not None and self.response_format.get("type") != "text":
            raise InvalidRequestError("only response_format text is served", param="response_format")
        if self.tools and self.tool_choice != "none":
            raise InvalidRequestError("tools are not served; leave them out", param="tools")


def chat_prompt(messages: list[Message]) -> ChatPrompt:
    """Raises InvalidRequestError for what is not text."""
    if not messages:
        raise InvalidRequestError("messages is empty; it must have at least one message", param="messages")
    return ChatPrompt(tuple(_chat_message(index, message) for index, message in enumerate(messages)))


def _chat_message(index: int, message: Message) -> ChatMessage:
    param = f"messages[{index}]"
    if message.role in ("tool", "function"):
        raise InvalidRequestError(f"{param}: messages of role {message.role} are not served", param=f"{param}.role")
    # Models know the newer name by the older one.
    role = "system" if message.role == "developer" else message.role
    if message.content is None:
        raise InvalidRequestError(f"{param}.content is missing", param=f"{param}.content")
    if isinstance(message.content, str):
        return ChatMessage(role, message.content)
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise InvalidRequestError(
                f"{param}.content: only parts of type text are served, not {part.type!r}", param=f"{param}.content"
            )
    return ChatMessage(role, "".join(part.text or "" for part in message.content))
