"""One orchestrator more, over replicas that run already."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import shared.checkout  # noqa: F401  # finds tests.support

from pilotfish.config import Config, config_to_yaml
from tests.support.service_process import ServiceProcess


@contextlib.contextmanager
def orchestrator(config: Config) -> Iterator[ServiceProcess]:
    """Start it over the configuration's target_addresses and draft_addresses, on free ports.

    Raises UnavailableError when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(config_to_yaml(config), encoding="utf-8")
        arguments = ["--config", str(path), "--set", "orchestrator.http.port=0"]
        with ServiceProcess("orchestrator", arguments) as process:
            yield process
