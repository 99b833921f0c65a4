"""An HTTP server for Kubernetes' probes alone: whoever fills the API's connections does not get the orchestrator
restarted, and its certificates are no matter of the kubelet's."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from orchestrator.http.exchange import Endpoint
from orchestrator.http.identity_middleware import IdentityMiddleware
from orchestrator.http.operations.information import InformationApi
from orchestrator.http.server import HttpServer
from orchestrator.requests.body_budget import UNCOUNTED_BYTES, BodyBudget
from pilotfish.config import PublicSecurityConfig

_LIMITS = PublicSecurityConfig(max_connections=64, request_read_timeout_s=5.0)


async def serve_probes(information: InformationApi, host: str, port: int) -> HttpServer:
    """/health and /ready on host:port. Raises UnavailableError when the address cannot be had."""
    handlers = {"/health": information.health, "/ready": information.ready}
    app = Starlette(
        routes=[
            Route(path, Endpoint(handler, UNCOUNTED_BYTES, BodyBudget(0)), methods=["GET"])
            for path, handler in handlers.items()
        ]
    )
    return await HttpServer.start(
        IdentityMiddleware(app),
        host,
        port,
        keep_alive_timeout_s=5,
        limits=_LIMITS,
        port_setting="orchestrator.http.probe_port",
    )
