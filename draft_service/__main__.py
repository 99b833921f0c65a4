"""`python -m draft_service`: see pilotfish.rpc.command."""

from __future__ import annotations

import sys

from pilotfish.installation import needed_for
from pilotfish.rpc.replica.server import ReplicaServer

with needed_for("the draft service"):
    from draft_service.server import start_draft
    from pilotfish.rpc.command import run_service


def describe(server: ReplicaServer) -> str:
    return f"proposer {server.model.proposer}, model {server.model.model_id}"


if __name__ == "__main__":
    sys.exit(run_service("draft_service", start_draft, describe))
