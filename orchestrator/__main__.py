"""`python -m orchestrator`: see pilotfish.rpc.command."""

from __future__ import annotations

import sys

from pilotfish.config import Config
from pilotfish.errors import ConfigError
from pilotfish.installation import needed_for

with needed_for("the orchestrator"):
    from orchestrator.server import OrchestratorServer
    from pilotfish.rpc.command import run_service


async def start(config: Config) -> OrchestratorServer:
    """Listening, and with a target replica unless none comes within orchestrator.connect_timeout_s.

    Raises ConfigError without addresses of targets: outside of Ray nothing else supplies them.
    """
    if not config.orchestrator.target_addresses:
        raise ConfigError(
            "orchestrator.target_addresses is empty: name the target replicas as [HOST:PORT, ...], or as "
            "[dns:///NAME:PORT] for all addresses of a name"
        )
    server = await OrchestratorServer.start(config)
    try:
        await server.wait_ready(config.orchestrator.connect_timeout_s)
    except BaseException:
        await server.drain_and_stop(0)
        raise
    return server


def describe(server: OrchestratorServer) -> str:
    targets, drafts = server.service.targets, server.service.drafts
    model_id = next((link.model.model_id for link in targets.links if link.is_connected), "not known yet")
    http = f", {server.http_url}" if server.http_url else ""
    return f"model {model_id}, {targets.num_connected} target, {drafts.num_connected} draft{http}"


if __name__ == "__main__":
    sys.exit(run_service("orchestrator", start, describe))
