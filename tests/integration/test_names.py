"""An orchestrator finds the replicas behind a name, as behind a headless Service of Kubernetes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, EmulationConfig, OrchestratorConfig, TargetConfig
from target_service.server import start_target


async def test_a_target_behind_a_name(tmp_path: Path) -> None:
    config = Config(
        emulation=EmulationConfig(profile="instant"),
        target=TargetConfig(model="nobody/has-this", port=0),
        cache_dir=str(tmp_path),
    )
    target = await start_target(config)
    try:
        _, _, port = target.address.rpartition(":")
        addresses = OrchestratorConfig(port=0, target_addresses=(f"dns:///localhost:{port}",))
        orchestrator = await OrchestratorServer.start(dataclasses.replace(config, orchestrator=addresses))
        try:
            assert await orchestrator.wait_ready(20)
            (link,) = (link for link in orchestrator.service.targets.links if link.is_connected)
            assert link.address == f"127.0.0.1:{port}", "what the name stands for, not the name"
        finally:
            await orchestrator.drain_and_stop(0)
    finally:
        await target.drain_and_stop(0)
