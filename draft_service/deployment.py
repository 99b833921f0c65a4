"""The draft service as a Ray Serve deployment. Serve places, watches and replaces; tokens never pass it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ray
from ray import serve

from draft_service.server import start_draft
from pilotfish.config import Config
from pilotfish.pools.autoscaling import load_stats
from pilotfish.pools.options import fixed_options, scaling_options
from pilotfish.rpc.hosting import STOP_GRACE_S, HostedService, reachable_address
from pilotfish.rpc.replica.server import ReplicaServer


class DraftReplica:
    """One replica: a draft server on a free port of this node, announced as replica metadata."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._server: ReplicaServer | None = None
        self._hosted: HostedService | None = None
        self._address = ""
        self._detail = ""

    async def record_replica_metadata(self) -> dict[str, str]:
        """Start the server; called once by Serve, which publishes the result to every router."""
        # The configured interface, but a free port: several replicas may share a node.
        metrics_port = min(0, self._config.draft.metrics_port)
        draft = dataclasses.replace(self._config.draft, port=0, metrics_port=metrics_port)
        server = self._server = await start_draft(dataclasses.replace(self._config, draft=draft))
        self._hosted = HostedService(server)
        self._detail = f"proposer {server.model.proposer}, model {server.model.model_id}"
        self._address = reachable_address(server.address, node_ip=ray.util.get_node_ip_address())
        return {"address": self._address}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve where the pool is autoscaled; see pilotfish.pools.autoscaling."""
        return {} if self._server is None else load_stats(self._server.load)

    async def describe(self) -> dict[str, str]:
        """The address and a line for people. The first call also starts the caller's router."""
        return {"address": self._address, "detail": self._detail}

    async def __del__(self) -> None:
        if self._hosted is not None:
            await self._hosted.stop()


def draft_application(config: Config, *, router_config: Mapping[str, Any]) -> serve.Application:
    """The deployment `draft`, bound to a configuration.

    router_config: Serve's RequestRouterConfig, as a mapping, of this deployment's handles.
    """
    return serve.deployment(
        DraftReplica,
        **scaling_options(config, "draft"),
        **fixed_options(drain_s=STOP_GRACE_S),
        request_router_config=dict(router_config),
    ).bind(config)
