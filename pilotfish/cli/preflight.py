"""What `pilotfish up` checks before it starts anything: that the public address is free."""

from __future__ import annotations

import errno
import socket

from pilotfish.client.access import Access
from pilotfish.client.answer import ServiceInfo
from pilotfish.client.inference import InferenceClient
from pilotfish.config.fields import address_of
from pilotfish.errors import ConfigError, PilotfishError, UnavailableError

PROBE_TIMEOUT_S = 1.0


def find_running(address: str) -> ServiceInfo | None:
    """What Pilotfish serves at an address, None if none answers there."""
    try:
        with InferenceClient(address, access=Access.from_environment(), connect_timeout_s=PROBE_TIMEOUT_S) as client:
            return client.info()
    except PilotfishError:
        return None


def require_free(host: str, port: int) -> None:
    """Raise UnavailableError if the public address is taken, ConfigError if it is not this machine's."""
    if port == 0 or _is_free(host, port, "orchestrator.port"):
        return
    address, other = address_of(host, port), _other_port("orchestrator.port", port)
    running = find_running(address)
    if running is not None:
        raise UnavailableError(f"Pilotfish already serves {running.model_id} on {address}: use it, stop it, or {other}")
    raise UnavailableError(f"another program listens on {address}: stop it, or {other}")


def require_free_http(host: str, port: int) -> None:
    """As require_free, for the HTTP API's address."""
    if not _is_free(host, port, "orchestrator.http.port"):
        other = _other_port("orchestrator.http.port", port)
        raise UnavailableError(
            f"another program listens on {address_of(host, port)}: stop it, or {other} (-1: no HTTP API)"
        )


def _other_port(setting: str, port: int) -> str:
    return f"choose another port with --set {setting}={port + 1 if port < 65535 else 0}"


def _is_free(host: str, port: int, setting: str) -> bool:
    host_setting, other = setting.replace("port", "host"), _other_port(setting, port)
    try:
        family, _, _, _, bind_address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server((str(bind_address[0]), port), family=family, backlog=1):
            return True
    except socket.gaierror:
        raise ConfigError(f"{host_setting} {host!r} is not an address of this machine") from None
    except PermissionError:
        raise ConfigError(f"port {port} needs privileges: {other}") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"{host_setting} {host!r} is not an address of this machine") from None
        if error.errno != errno.EADDRINUSE:
            raise ConfigError(f"cannot listen on {address_of(host, port)}: {error.strerror}") from None
        return False
