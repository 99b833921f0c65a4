"""Endpoints about the server: /v1/models, /health, /ready, /version, /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

import pilotfish
from orchestrator.http.completions.served_model import connected_model, served_model
from orchestrator.http.errors import error_body
from orchestrator.http.exchange import Exchange
from orchestrator.inference import InferenceService
from pilotfish.types import ModelInfo


class ModelCard(msgspec.Struct, kw_only=True):
    """A model, as OpenAI lists it, with what vLLM adds."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["pilotfish"] = "pilotfish"
    max_model_len: int
    """Prompt plus output at most, in tokens."""
    emulated: bool


class ModelList(msgspec.Struct):
    """The model, once for each of its names; none while no replica is there."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Status(msgspec.Struct):
    """Whether requests are served."""

    status: str


class Version(msgspec.Struct):
    """The version of Pilotfish."""

    version: str


class InformationApi:
    """The endpoints."""

    def __init__(self, service: InferenceService, is_draining: Callable[[], bool], registry: CollectorRegistry) -> None:
        self._service = service
        self._is_draining = is_draining
        self._registry = registry
        self._start_time = int(time.time())

    async def models(self, exchange: Exchange) -> None:
        """GET /v1/models."""
        model = connected_model(self._service)
        names = () if model is None else self._service.model_names(model)
        await exchange.reply(ModelList([self._card(name, model) for name in names if model is not None]))

    async def model(self, exchange: Exchange) -> None:
        """GET /v1/models/{id}."""
        name: str = exchange.request.path_params["model_id"]
        await exchange.reply(self._card(name, await served_model(self._service, name)))

    async def health(self, exchange: Exchange) -> None:
        """GET /health: the process answers, and is to go on."""
        await self._answer(exchange, "ok")

    async def ready(self, exchange: Exchange) -> None:
        """GET /ready: requests are served."""
        has_target = self._service.targets.num_connected > 0
        await self._answer(exchange, "ready", "" if has_target else "no target replica is connected")

    async def version(self, exchange: Exchange) -> None:
        """GET /version."""
        await exchange.reply(Version(pilotfish.__version__))

    async def metrics(self, exchange: Exchange) -> None:
        """GET /metrics, for Prometheus: text, or OpenMetrics where the scraper prefers it."""
        encode, content_type = choose_encoder(exchange.request.headers.get("accept", ""))
        await exchange.reply_bytes(encode(self._registry), content_type)

    async def _answer(self, exchange: Exchange, status: str, problem: str = "") -> None:
        if self._is_draining():
            problem = "the server is shutting down"
        if problem:
            await exchange.reply(error_body(503, problem, code="service_unavailable"), 503)
        else:
            await exchange.reply(Status(status))

    def _card(self, name: str, model: ModelInfo) -> ModelCard:
        return ModelCard(
            id=name,
            created=self._start_time,
            max_model_len=model.max_context_tokens,
            emulated=model.emulated,
        )
