"""The uvicorn server on the orchestrator's own event loop, started and stopped by the orchestrator."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from orchestrator.http.protocol import LimitedConfig
from orchestrator.requests.stranger_share import StrangerShare
from pilotfish.config import PublicSecurityConfig
from pilotfish.config.fields import address_of
from pilotfish.errors import UnavailableError
from pilotfish.rpc.server import explain
from pilotfish.security.certificates import CertificateSource, ReloadingContext

_BACKLOG = 2048
_DATE_PERIOD_S = 1.0


class HttpServer:
    """A listening HTTP server. Made by `start`."""

    def __init__(self, server: _Server, listener: socket.socket, scheme: str) -> None:
        host, port = listener.getsockname()[:2]
        self.address = address_of(host, port)
        """The `host:port`, with the port that was taken."""
        self.url = f"{scheme}://{self.address}"
        self._server = server
        self._task = asyncio.create_task(server.serve([listener]))

    @classmethod
    async def start(
        cls,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        keep_alive_timeout_s: int,
        limits: PublicSecurityConfig,
        strangers: StrangerShare | None = None,
        certificates: CertificateSource | None = None,
        port_setting: str = "orchestrator.http.port",
    ) -> HttpServer:
        """Listen on host:port (0: a free port). strangers: shared with other servers, if any. certificates: for TLS.
        port_setting: the configuration key of the port, for messages. Raises UnavailableError when the address cannot
        be had."""
        listener = _listen(host, port, port_setting)
        _limit_stalls(listener, limits.response_write_timeout_s)
        config = LimitedConfig(
            app,
            limits=limits,
            strangers=strangers or StrangerShare(limits.max_stranger_share),
            ssl_context_factory=None if certificates is None else lambda *_: ReloadingContext.of(certificates),
            loop="none",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=keep_alive_timeout_s,
            backlog=_BACKLOG,
        )
        self = cls(_Server(config), listener, "http" if certificates is None else "https")
        started = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait((started, self._task), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            started.cancel()
            self._task.result()
        return self

    async def stop(self, grace_s: float) -> None:
        """Give open requests grace_s to end, cut the rest. Idempotent, also while it is under way.

        Until then it listens: probes and new requests get the application's refusal.
        """
        deadline = asyncio.get_running_loop().time() + grace_s
        if answering := tuple(self._server.server_state.tasks):
            await asyncio.wait(answering, timeout=grace_s)
        self._server.stopping.set()
        await asyncio.wait((self._task,), timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        if not self._task.done():
            self._server.cut_connections()
            await asyncio.wait((self._task,))
        self._task.result()


class _Server(uvicorn.Server):
    """Signals are the process's affair, and nothing waits for the tick of a clock."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        while not self.stopping.is_set():
            await self.on_tick(0)  # the header `date`
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), _DATE_PERIOD_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and wait until every request that is being answered has its answer."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        state = self.server_state
        for connection in tuple(state.connections):
            connection.shutdown()
        while state.tasks:
            await asyncio.wait(tuple(state.tasks))

    def cut_connections(self) -> None:
        """Who is still served is cut off: to the requests it is as if their clients had left."""
        for connection in tuple(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


def _limit_stalls(listener: socket.socket, timeout_s: float) -> None:
    """A peer that takes none of what it is sent for so long is disconnected by the kernel: listening sockets hand the
    option on. It sees what a process does not, such as what is left to send of a connection that is closed."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, round(1000 * timeout_s))


def _listen(host: str, port: int, port_setting: str) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        is_any = str(address[0]) == "::" and socket.has_dualstack_ipv6()  # of IPv4 as well, as gRPC has it
        return socket.create_server((str(address[0]), port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_any)
    except OSError as error:
        reason = explain(error, host, port, port_setting)
        raise UnavailableError(f"{reason} (-1: no HTTP)") from None
