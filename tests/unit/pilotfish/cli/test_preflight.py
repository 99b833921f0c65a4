"""A public address that cannot be had is refused before anything starts."""

import socket

import pytest

from pilotfish.cli.preflight import require_free, require_free_http
from pilotfish.errors import ConfigError, UnavailableError


def test_a_free_port_passes_and_stays_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    require_free("127.0.0.1", port)
    require_free("127.0.0.1", port)


def test_a_taken_port_is_refused_with_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=r"another program listens.*--set orchestrator\.port="):
            require_free("127.0.0.1", port)


def test_the_port_of_the_http_api_is_checked_as_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"{port}: stop it, or .*orchestrator\.http\.port={port + 1}"):
            require_free_http("127.0.0.1", port)
    require_free_http("127.0.0.1", port)


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"orchestrator\.host '192\.0\.2\.1' is not an address of this machine"):
        require_free("192.0.2.1", 50999)
