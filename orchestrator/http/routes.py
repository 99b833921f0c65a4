"""The endpoints of the HTTP API: where each is, who serves it, and what its description says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.chat_response import ChatCompletion, ChatCompletionChunk
from orchestrator.http.completions.completion_request import CompletionRequest
from orchestrator.http.completions.completion_response import Completion
from orchestrator.http.completions.generation import GenerationApi
from orchestrator.http.exchange import Handler
from orchestrator.http.operations.information import InformationApi, ModelCard, ModelList, Status, Version
from orchestrator.http.operations.tokenization import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizationApi,
    TokenizeRequest,
    TokenizeResponse,
)
from orchestrator.http.responses.request import ResponsesRequest
from orchestrator.http.responses.response import Response, ResponseEvent


@dataclass(frozen=True)
class Apis:
    """Who serves."""

    generation: GenerationApi
    information: InformationApi
    tokenization: TokenizationApi


@dataclass(frozen=True)
class Operation:
    """One endpoint."""

    method: str
    path: str
    handler: Callable[[Apis], Handler]
    summary: str = ""
    response: type | None = None
    """None: it is no part of the description."""
    request: type | None = None
    event: type | None = None
    """Type of the stream's events, where `stream` may be asked for. Such endpoints have a time limit, which their
    clients may set."""
    own_failures: tuple[int, ...] = ()
    """Status codes of failures of an endpoint that takes nothing."""

    @property
    def failures(self) -> tuple[int, ...]:
        if self.event is not None:
            return 400, 404, 413, 429, 500, 503, 504
        return self.own_failures if self.request is None else (400, 404, 413, 503)


OPERATIONS = (
    Operation(
        "POST",
        "/v1/chat/completions",
        lambda apis: apis.generation.chat,
        "Answer a chat",
        ChatCompletion,
        ChatCompletionRequest,
        ChatCompletionChunk,
    ),
    Operation(
        "POST",
        "/v1/completions",
        lambda apis: apis.generation.complete,
        "Go on with a text",
        Completion,
        CompletionRequest,
        Completion,
    ),
    Operation(
        "POST",
        "/v1/responses",
        lambda apis: apis.generation.respond,
        "Answer a chat whose items are typed",
        Response,
        ResponsesRequest,
        ResponseEvent,
    ),
    Operation("GET", "/v1/models", lambda apis: apis.information.models, "The served model", ModelList),
    Operation(
        "GET",
        "/v1/models/{model_id:path}",
        lambda apis: apis.information.model,
        "The served model, by its name",
        ModelCard,
        own_failures=(404, 503),
    ),
    Operation(
        "POST",
        "/tokenize",
        lambda apis: apis.tokenization.tokenize,
        "Token ids of a text or a chat",
        TokenizeResponse,
        TokenizeRequest,
    ),
    Operation(
        "POST",
        "/detokenize",
        lambda apis: apis.tokenization.detokenize,
        "Text of token ids",
        DetokenizeResponse,
        DetokenizeRequest,
    ),
    Operation(
        "GET",
        "/health",
        lambda apis: apis.information.health,
        "Whether the process answers",
        Status,
        own_failures=(503,),
    ),
    Operation(
        "GET",
        "/ready",
        lambda apis: apis.information.ready,
        "Whether requests are served",
        Status,
        own_failures=(503,),
    ),
    Operation("GET", "/version", lambda apis: apis.information.version, "Of Pilotfish", Version),
    Operation("GET", "/metrics", lambda apis: apis.information.metrics),
)
