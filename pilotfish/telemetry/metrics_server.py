"""/metrics on a port of its own, for services that speak no HTTP otherwise."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, start_http_server

from pilotfish.config.fields import address_of
from pilotfish.errors import UnavailableError

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves a registry from a thread. Its collectors must read nothing but numbers and values that never change."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int, *, port_setting: str) -> None:
        """Listen on host:port (0: a free port); port_setting: its configuration key, for messages.

        Raises UnavailableError when the address cannot be had.
        """
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise UnavailableError(
                f"cannot serve metrics on {address_of(host, port)}: {error.strerror or error}; "
                f"choose another port with --set {port_setting}=PORT (-1: none)"
            ) from None
        self.address = address_of(host, self._server.server_port)
        """The `host:port`, with the port that was taken."""
        _log.info("metrics for Prometheus: http://%s/metrics", self.address)

    def close(self) -> None:
        """Stop listening. Takes up to half a second, so not on an event loop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
