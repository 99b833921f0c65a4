"""`python -m shared.planted_service ROLE --config FILE`: a target or draft service over a shared.planted_engine."""

from __future__ import annotations

import sys

from draft_service.server import start_draft
from pilotfish.config import Config
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.rpc.command import run_service
from pilotfish.rpc.replica.server import ReplicaServer
from target_service.server import start_target

WORKER = "shared.planted_engine"


async def target(config: Config) -> ReplicaServer:
    return await start_target(config, engine=await ProcessEngine.start(config, "target", worker_module=WORKER))


async def draft(config: Config) -> ReplicaServer:
    return await start_draft(config, engine=await ProcessEngine.start(config, "draft", worker_module=WORKER))


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    start = target if name == "target_service" else draft
    sys.exit(run_service(name, start, lambda server: f"model {server.model.model_id}", arguments))
