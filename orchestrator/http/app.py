"""The HTTP API as an application: its routes and what stands before them."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api_security import Authenticator
from orchestrator.http.auth_middleware import AuthMiddleware
from orchestrator.http.completions.generation import GenerationApi
from orchestrator.http.completions.request_fields import IGNORED_HEADER, LOSSY_HEADER
from orchestrator.http.errors import error_body, error_response
from orchestrator.http.exchange import Endpoint, Handler
from orchestrator.http.identity_middleware import IdentityMiddleware
from orchestrator.http.operations.fleet import fleet_endpoint
from orchestrator.http.operations.information import InformationApi
from orchestrator.http.operations.openapi import openapi_endpoint
from orchestrator.http.operations.pages import playground_routes
from orchestrator.http.operations.tokenization import TokenizationApi
from orchestrator.http.routes import OPERATIONS, Apis
from orchestrator.inference import InferenceService
from orchestrator.requests.body_budget import UNCOUNTED_BYTES, BodyBudget
from orchestrator.requests.identity import REQUEST_ID_HEADER, TRACE_ID_HEADER
from pilotfish.config import OrchestratorConfig


def build_app(
    service: InferenceService,
    config: OrchestratorConfig,
    is_draining: Callable[[], bool],
    registry: CollectorRegistry,
    authenticator: Authenticator,
    budget: BodyBudget,
) -> ASGIApp:
    """The ASGI application. registry: what /metrics shows. authenticator: who is served. budget: memory for bodies.
    Needs a running event loop."""
    apis = Apis(
        GenerationApi(service, config),
        InformationApi(service, is_draining, registry),
        TokenizationApi(service, is_strict=config.http.strict_fields),
    )

    def route(method: str, path: str, handler: Handler) -> Route:
        refuses = is_draining if method == "POST" else lambda: False
        max_bytes = config.max_prompt_bytes if method == "POST" else UNCOUNTED_BYTES  # which nobody looks at
        return Route(path, Endpoint(handler, max_bytes, budget, refuses), methods=[method])

    routes = [
        *(route(operation.method, operation.path, operation.handler(apis)) for operation in OPERATIONS),
        route("GET", "/openapi.json", openapi_endpoint()),
        route("GET", "/fleet", fleet_endpoint(service, config.speculation)),
        *playground_routes(),
    ]
    app = Starlette(
        routes=routes, middleware=_middleware(config, authenticator), exception_handlers={HTTPException: _refuse}
    )
    return IdentityMiddleware(_without_last_slash(app))


def _without_last_slash(app: ASGIApp) -> ASGIApp:
    """A path that ends with a slash is the one without."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["path"].rstrip("/") or "/"
        await app(scope, receive, send)

    return serve


def _middleware(config: OrchestratorConfig, authenticator: Authenticator) -> list[Middleware]:
    cors_origins = config.http.cors_origins
    hosts = (config.http_host, *config.http.allowed_hosts)
    auth_middleware = Middleware(AuthMiddleware, authenticator, hosts=hosts, cors_origins=cors_origins)
    if not cors_origins:
        return [auth_middleware]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=cors_origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=(IGNORED_HEADER, LOSSY_HEADER, REQUEST_ID_HEADER, TRACE_ID_HEADER, "retry-after"),
    )
    # Outermost: a browser asks without a key whether it may ask, and shows a page only refusals that name its origin.
    return [cors, auth_middleware]


async def _refuse(request: Request, error: Exception) -> Response:
    """The answer for paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}; /v1/models is a good place to start"
    body = error_body(error.status_code, message, code=code)
    return error_response(error.status_code, body, error.headers or {})
