import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pilotfish.errors import ConfigError
from tests.support.conditions import Conditions
from tests.support.fault_proxy import exact_loop
from tests.support.proxy_process import ProxyProcess


@pytest.fixture
def echo_address() -> Iterator[str]:
    """A server that answers one connection, blocking, on a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError), server.accept()[0] as connection:
                while data := connection.recv(4096):
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
    thread.join()


def connect(proxy: ProxyProcess) -> socket.socket:
    host, port = proxy.address.split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(10)
    return connection


def round_trip_s(connection: socket.socket) -> float:
    start = time.perf_counter()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    return time.perf_counter() - start


def test_conditions_change_while_it_runs(echo_address: str) -> None:
    with ProxyProcess(echo_address, Conditions(delay_ms=5)) as proxy, connect(proxy) as connection:
        assert min(round_trip_s(connection) for _ in range(5)) >= 0.01
        proxy.apply(Conditions(frozen=True), "up")
        connection.sendall(b"y")
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.apply()
        connection.settimeout(10)
        assert connection.recv(1) == b"y"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_one_that_cannot_start_says_so(echo_address: str) -> None:
    host, port = echo_address.split(":")
    with pytest.raises(ConfigError), ProxyProcess(echo_address, listen=echo_address):
        pass
    socket.create_connection((host, int(port))).close()


def test_timers_of_the_exact_loop_are_not_rounded_to_milliseconds() -> None:
    async def sleep_ms() -> float:
        start = time.perf_counter()
        await asyncio.sleep(0.0002)
        return 1000 * (time.perf_counter() - start)

    with asyncio.Runner(loop_factory=exact_loop) as runner:
        # The best of many: others use this machine, too.
        assert 0.2 <= min(runner.run(sleep_ms()) for _ in range(20)) < 0.9
