"""`python -m target_service`: see pilotfish.rpc.command."""

from __future__ import annotations

import sys

from pilotfish.installation import needed_for

with needed_for("the target service"):
    from pilotfish.rpc.command import run_service
    from target_service.server import TargetServer


def describe(server: TargetServer) -> str:
    return f"model {server.model.model_id}, deterministic {'yes' if server.model.deterministic else 'no'}"


if __name__ == "__main__":
    sys.exit(run_service("target_service", TargetServer.start, describe))
