"""A grpc.aio server with health, reflection, a clear word about a port in use, and a graceful stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pilotfish.errors import UnavailableError
from pilotfish.rpc.channel import SERVER_OPTIONS
from pilotfish.rpc.listening import require_free_port

LIVENESS = "liveness"
"""Health name that stays SERVING while the process can answer at all."""
READINESS = "readiness"
"""Health name that follows `set_ready`, as do the empty one and the services' own."""


class Service(Protocol):
    """What the servers of the three services have in common."""

    @property
    def address(self) -> str: ...

    async def drain_and_stop(self, grace_s: float) -> None: ...

    async def wait_closed(self) -> None: ...


class GrpcServer:
    """One listening server. Starts as not ready."""

    def __init__(self, server: grpc.aio.Server, address: str, service_names: Sequence[str]) -> None:
        self._server = server
        self.address = address
        """host:port, with the port that was taken."""
        self._ready_names = ("", READINESS, *service_names)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # absent from grpc-stubs

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        *,
        register: Callable[[grpc.aio.Server], None],
        service_names: Sequence[str],
        port_setting: str,
        options: Sequence[tuple[str, int]] = SERVER_OPTIONS,
        credentials: grpc.ServerCredentials | None = None,
    ) -> GrpcServer:
        """Listen on host:port (0: a free port).

        register: adds the servicers. service_names: their full names, for health and reflection.
        port_setting: the configuration key of the port, for messages. options: of pilotfish.rpc.channel.
        credentials: None for plain text.
        Raises: UnavailableError when the address cannot be had.
        """
        server = grpc.aio.server(options=options)
        try:
            if credentials is None:
                bound_port = server.add_insecure_port(f"{host}:{port}")
            else:
                bound_port = server.add_secure_port(f"{host}:{port}", credentials)
        except RuntimeError:
            # gRPC does not tell why.
            await require_free_port(host, port, port_setting)
            advice = f"try again, or choose another with --set {port_setting}=PORT"
            raise UnavailableError(f"cannot listen on {host}:{port}: {advice}") from None
        self = cls(server, f"{host}:{bound_port}", service_names)
        register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.set_ready(False)
        await server.start()
        return self

    async def set_ready(self, is_ready: bool) -> None:
        """SERVING or NOT_SERVING, under every name but `liveness`."""
        response = health_pb2.HealthCheckResponse
        for name in self._ready_names:
            await self._health.set(name, response.SERVING if is_ready else response.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give open ones grace_s to end, cancel the rest. Idempotent."""
        await self._server.stop(grace_s)
