"""POST /v1/chat/completions: what an answer is made of."""

from __future__ import annotations

from typing import Literal

import msgspec

from orchestrator.http.completions.envelope import Envelope
from orchestrator.http.completions.logprobs import ChatLogprobs, PromptLogprobs
from orchestrator.http.completions.speculation import ChoiceDetails
from orchestrator.http.completions.usage import Usage


class CallFunction(msgspec.Struct):
    """Which function, and with what."""

    name: str | msgspec.UnsetType
    """The function's name; in streams only a call's first piece has it, and its id."""
    arguments: str
    """A JSON object, as text, if the model wrote one and was not cut off."""


class CallItem(msgspec.Struct, omit_defaults=True):
    """A function that the model calls."""

    id: str | msgspec.UnsetType
    function: CallFunction
    index: int | None = None
    """In streams: the index of the call in the answer."""
    type: Literal["function"] | None = None


class AssistantMessage(msgspec.Struct):
    """The answer's words, or the calls it makes."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    tool_calls: list[CallItem] | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    """What the model thought before."""
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    """`reasoning`, by its older name."""


class ChatChoice(msgspec.Struct, kw_only=True):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Present with `return_token_ids`, as `prompt_token_ids`."""
    speculation: ChoiceDetails


class ChatCompletion(Envelope, kw_only=True):
    """The body of an answer that is not streamed."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType | None = msgspec.UNSET
    usage: Usage


class Delta(msgspec.Struct, omit_defaults=True):
    """What a message grows by."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[CallItem] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """What one answer grows by."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    speculation: ChoiceDetails | msgspec.UnsetType = msgspec.UNSET


class ChatCompletionChunk(Envelope, kw_only=True):
    """An event of a streamed answer."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Present in an answer's first event."""
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    """Present where it was asked for: null in all events but the last."""
