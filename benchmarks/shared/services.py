"""One orchestrator more, over replicas that run already."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from pilotfish.config import Config, config_to_yaml
from pilotfish.errors import UnavailableError
from pilotfish.launch.specs import free_ports
from pilotfish.launch.tether import tethered

REPOSITORY = Path(__file__).resolve().parents[2]
_STOP_TIMEOUT_S = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class Orchestrator:
    """One that runs."""

    address: str
    """host:port of the gRPC API."""
    url: str
    """Of the HTTP API."""
    process: psutil.Process


@contextlib.contextmanager
def orchestrator(config: Config) -> Iterator[Orchestrator]:
    """Start it over the configuration's target_addresses and draft_addresses, on free ports.

    Raises UnavailableError when it does not start.
    """
    port, http_port = free_ports(2)
    http = dataclasses.replace(config.orchestrator.http, port=http_port)
    config = dataclasses.replace(config, orchestrator=dataclasses.replace(config.orchestrator, port=port, http=http))
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(config_to_yaml(config), encoding="utf-8")
        command = tethered("orchestrator", "--config", str(path))
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                if not process.stdout.readline():
                    raise UnavailableError("an orchestrator did not start")
                yield Orchestrator(f"127.0.0.1:{port}", f"http://127.0.0.1:{http_port}", psutil.Process(process.pid))
            finally:
                process.terminate()
                process.wait(_STOP_TIMEOUT_S)
