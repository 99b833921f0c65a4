"""The target service as a Ray Serve deployment. Serve places, watches and replaces; tokens never pass it."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pilotfish.config import Config
from pilotfish.parallel.meeting import MEETING_PREFIX, rank_command
from pilotfish.pools.autoscaling import WaitingRequests, load_stats
from pilotfish.pools.options import num_ranks
from pilotfish.rpc.hosting import PoolReplica, on_free_port
from target_service.hosts import start_beside_ranks
from target_service.server import start_target


class RankHost:
    """Runs a rank from 1 on, in its own process, with what Ray has reserved for this actor."""

    def __init__(self, folder: str, rank: int) -> None:
        self._process = subprocess.Popen(rank_command(Path(folder), rank), stdin=subprocess.DEVNULL)

    def wait(self) -> int:
        """The status of the rank's process, once that has ended."""
        return self._process.wait()


class TargetReplica(PoolReplica):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._waiting = WaitingRequests()
        self._meeting_place: tempfile.TemporaryDirectory[str] | None = None
        self._rank_hosts: list[Any] = []

    async def record_replica_metadata(self) -> dict[str, str]:
        """Start the server; called once by Serve."""
        config = dataclasses.replace(self._config, target=on_free_port(self._config.target))
        start = start_target(config, rank_folder=self._start_ranks())
        server = await start_beside_ranks(start, [host.wait.remote() for host in self._rank_hosts])
        deterministic = "yes" if server.model.deterministic else "no"
        detail = f"model {server.model.model_id}, deterministic {deterministic}"
        return self._host(server, node_ip=ray.util.get_node_ip_address(), detail=detail)

    def _start_ranks(self) -> str:
        """Start every rank but rank 0, which is this replica's engine, in its bundle of the replica's placement group.

        Returns the folder where they meet; empty for a target in one process.
        """
        count = num_ranks(self._config, "target")
        if count == 1:
            return ""
        self._meeting_place = tempfile.TemporaryDirectory(prefix=MEETING_PREFIX)
        group = ray.util.get_current_placement_group()
        for rank in range(1, count):
            bundle = dict(group.bundle_specs[rank])
            host = ray.remote(RankHost).options(
                num_cpus=bundle.pop("CPU", 0),
                num_gpus=bundle.pop("GPU", 0),
                resources=bundle,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
            )
            self._rank_hosts.append(host.remote(self._meeting_place.name, rank))
        return self._meeting_place.name

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The replica's load, and the requests that wait for the pool."""
        return {} if self._server is None else load_stats(self._server.load, self._waiting.total())

    async def note_waiting(self, orchestrator_id: str, num_waiting: int) -> None:
        """Orchestrators say how many requests wait there. Seldom, and only while some do."""
        self._waiting.note(orchestrator_id, num_waiting)
