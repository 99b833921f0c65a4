import urllib.request

import pytest

from pilotfish.errors import UnavailableError
from pilotfish.telemetry.metrics_server import MetricsServer
from pilotfish.telemetry.registry import new_registry


def test_it_serves_until_it_is_closed_and_says_which_setting_is_wrong() -> None:
    server = MetricsServer(new_registry(), "127.0.0.1", 0, port_setting="target.metrics_port")
    try:
        with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as response:
            assert b"process_cpu_seconds_total" in response.read()
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(UnavailableError, match=r"--set target\.metrics_port=PORT"):
            MetricsServer(new_registry(), "127.0.0.1", port, port_setting="target.metrics_port")
    finally:
        server.close()
    MetricsServer(new_registry(), "127.0.0.1", port, port_setting="x").close()
