"""A grpc.aio server with health, reflection, a clear word about a port in use, and a graceful stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pilotfish.config.fields import address_of
from pilotfish.errors import UnavailableError
from pilotfish.rpc.channel import SERVER_OPTIONS


async def require_free_port(host: str, port: int, setting: str) -> None:
    """Raises UnavailableError when nothing can listen on host:port now. 0: any free port, below 0: none is wanted.

    For before the minutes that loading a model takes; whoever binds later must still be ready to fail.
    setting: configuration key of the port, for the message.
    """
    if port < 0:
        return
    problem: OSError | None = None
    try:
        # A name may have several addresses, and a server is content with one of them.
        for family, kind, protocol, _, address in await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                _bind(family, kind, protocol, address)
            except OSError as error:
                problem = problem or error
            else:
                return
    except socket.gaierror as error:
        problem = error
    assert problem is not None, "getaddrinfo names an address or raises"
    raise UnavailableError(explain(problem, host, port, setting)) from None


def _bind(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as probe:
        # As servers bind: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


def explain(error: OSError, host: str, port: int, setting: str) -> str:
    """Why nothing can listen on host:port, and what to do. setting: configuration key of the port."""
    where, other = f"cannot listen on {address_of(host, port)}", f"choose another with --set {setting}=PORT"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use; stop what uses it (another Pilotfish?) or {other}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: the port needs privileges; {other}"
    return f"{where}: {error.strerror or error}; the host must be an address of this machine (0.0.0.0: all of them)"


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
        """The `host:port`, with the port that was taken."""
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
        interceptors: Sequence[grpc.aio.ServerInterceptor[Any, Any]] = (),
    ) -> GrpcServer:
        """Listen on host:port (0: a free port).

        register: adds the servicers. service_names: their full names, for health and reflection.
        port_setting: the configuration key of the port, for messages. options: as in pilotfish.rpc.channel.
        credentials: None for plain text. interceptors: see all calls.
        Raises: UnavailableError when the address cannot be had.
        """
        server = grpc.aio.server(options=options, interceptors=interceptors)
        try:
            if credentials is None:
                bound_port = server.add_insecure_port(address_of(host, port))
            else:
                bound_port = server.add_secure_port(address_of(host, port), credentials)
        except RuntimeError:
            # gRPC does not say why.
            await require_free_port(host, port, port_setting)
            advice = f"try again, or choose another with --set {port_setting}=PORT"
            raise UnavailableError(f"cannot listen on {address_of(host, port)}: {advice}") from None
        self = cls(server, address_of(host, bound_port), service_names)
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
