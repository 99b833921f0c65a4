"""An orchestrator finds the replicas behind a name, as behind a headless Service of Kubernetes."""

import dataclasses
from pathlib import Path

from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, EmulationConfig, OrchestratorConfig
from tests.support.stack import running_stack


async def test_a_target_behind_a_name(tmp_path: Path) -> None:
    config = Config(emulation=EmulationConfig(profile="instant"), cache_dir=str(tmp_path))
    async with running_stack(config, with_draft=False) as stack:
        _, _, port = stack.target.address.rpartition(":")
        section = OrchestratorConfig(port=0, target_addresses=(f"dns:///localhost:{port}",))
        orchestrator = await OrchestratorServer.start(dataclasses.replace(config, orchestrator=section))
        try:
            assert await orchestrator.wait_ready(20)
            (link,) = (link for link in orchestrator.service.targets.links if link.is_connected)
            assert link.address == f"127.0.0.1:{port}", "what the name stands for, not the name"
        finally:
            await orchestrator.drain_and_stop(0)
