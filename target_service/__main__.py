"""`python -m target_service`: see pilotfish.rpc.command."""

from __future__ import annotations

import sys

from pilotfish.installation import needed_for
from pilotfish.rpc.replica.server import ReplicaServer

with needed_for("the target service"):
    from pilotfish.rpc.command import run_service
    from target_service.server import start_target


def describe(server: ReplicaServer) -> str:
    return f"model {server.model.model_id}, deterministic {'yes' if server.model.deterministic else 'no'}"


if __name__ == "__main__":
    sys.exit(run_service("target_service", start_target, describe))
