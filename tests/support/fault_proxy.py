"""A TCP proxy with faults: what stands between an orchestrator and a replica when the network is bad.

It knows nothing of what it carries. In a program: `FaultProxy`, on the program's own event loop. As a process,
with delays that are exact to a tenth of a millisecond:

    python -m tests.support.fault_proxy --listen 127.0.0.1:7001 --to 127.0.0.1:50062 --delay-ms 2

With --control it reads a line like `delay_ms=2 jitter_ms=1`, `frozen=1`, `reset` or `half_open` from its standard
input whenever the conditions shall change; an empty line ends them.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import selectors
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self

from pilotfish.errors import ConfigError
from tests.support.conditions import Conditions
from tests.support.fault_connection import FaultConnection

Direction = Literal["both", "up", "down"]
"""up: from who connects to the replica; down: back."""


class FaultProxy:
    """`async with FaultProxy("127.0.0.1:50062") as proxy`: listens on proxy.address inside the block."""

    def __init__(
        self, to: str, conditions: Conditions | None = None, *, listen: str = "127.0.0.1:0", seed: int = 0
    ) -> None:
        """to, listen: host:port; port 0 takes a free one. seed: of jitter and loss."""
        self._to = _host_and_port(to)
        self._listen = _host_and_port(listen)
        self._up = self._down = conditions or Conditions()
        self._seed = seed
        self._connections: set[FaultConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.num_accepted = 0
        """Connections that were made to it so far."""

    async def start(self) -> None:
        """Begin to listen. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, *self._listen)
        self._listen = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        """Reset all connections and stop. Idempotent."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """host:port where it listens."""
        return f"{self._listen[0]}:{self._listen[1]}"

    @property
    def num_connections(self) -> int:
        """Open ones."""
        return len(self._connections)

    def apply(self, conditions: Conditions | None = None, direction: Direction = "both") -> None:
        """From now on, on all connections; None: a wire that does nothing."""
        conditions = conditions or Conditions()
        self._up = self._up if direction == "down" else conditions
        self._down = self._down if direction == "up" else conditions
        for connection in tuple(self._connections):
            connection.up.apply(self._up)
            connection.down.apply(self._down)

    def redirect(self, to: str) -> None:
        """Lead new connections elsewhere: a replica that came back on another port."""
        self._to = _host_and_port(to)

    def reset(self) -> None:
        """Reset every connection, both ends."""
        for connection in tuple(self._connections):
            connection.reset()

    def half_open(self) -> None:
        """Reset the replica's end of every connection and let the other hear nothing, as when a machine is lost."""
        for connection in tuple(self._connections):
            connection.half_open()

    def _accept(self) -> asyncio.Protocol:
        self.num_accepted += 1
        seed = self._seed + 2 * self.num_accepted
        connection = FaultConnection(self._up, self._down, seed, self._connections)
        task = asyncio.create_task(self._dial(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return connection.client

    async def _dial(self, connection: FaultConnection) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection.replica, *self._to)
        except OSError:
            connection.reset()
        else:
            if connection.is_over:
                connection.reset()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def obey(proxy: FaultProxy, line: str) -> None:
    """Do what a line of the control input says. Raises ConfigError."""
    words = line.split()
    if words == ["reset"]:
        proxy.reset()
    elif words == ["half_open"]:
        proxy.half_open()
    elif words[:1] in (["up"], ["down"]):
        proxy.apply(Conditions.parse(" ".join(words[1:])), "up" if words[0] == "up" else "down")
    else:
        proxy.apply(Conditions.parse(line))


async def _serve(proxy: FaultProxy, is_controlled: bool) -> None:
    async with proxy:
        print(f"fault_proxy ready on {proxy.address}", flush=True)
        if not is_controlled:
            await asyncio.get_running_loop().create_future()
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async for line in lines:
            try:
                obey(proxy, line.decode())
            except ConfigError as error:
                print(f"error: {error}", file=sys.stderr)
            print("ok", flush=True)


def exact_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are exact to some 0.1 ms: those of epoll, asyncio's default, wait whole
    milliseconds, those of select microseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Ends with its control input, or by a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fault_proxy", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--to", required=True, help="host:port of the replica")
    parser.add_argument("--control", action="store_true", help="take new conditions from the standard input")
    for field in dataclasses.fields(Conditions):
        flag = "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(field.default), default=field.default)
    options = vars(parser.parse_args(arguments))
    listen, to, is_controlled = options.pop("listen"), options.pop("to"), options.pop("control")
    try:
        proxy = FaultProxy(to, Conditions(**options), listen=listen)
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=exact_loop) as runner:
            runner.run(_serve(proxy, is_controlled))
    except (ConfigError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
