"""The target service as a Ray Serve deployment. Serve places, watches and replaces; tokens never pass it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ray
from ray import serve

from pilotfish.config import Config
from pilotfish.rpc.hosting import HostedService, reachable_address
from target_service.server import TargetServer

HEALTH_CHECK_PERIOD_S = 1.0
HEALTH_CHECK_TIMEOUT_S = 5.0
SHUTDOWN_TIMEOUT_S = 15.0


class TargetReplica:
    """One replica: a target server on a free port of this node, announced as replica metadata."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._hosted: HostedService | None = None
        self._address = ""
        self._detail = ""

    async def record_replica_metadata(self) -> dict[str, str]:
        """Start the server; called once by Serve, which publishes the result to every router."""
        # The configured interface, but a free port: several replicas may share a node.
        metrics_port = min(0, self._config.target.metrics_port)
        target = dataclasses.replace(self._config.target, port=0, metrics_port=metrics_port)
        server = await TargetServer.start(dataclasses.replace(self._config, target=target))
        self._hosted = HostedService(server)
        deterministic = "yes" if server.model.deterministic else "no"
        self._detail = f"model {server.model.model_id}, deterministic {deterministic}"
        self._address = reachable_address(server.address, node_ip=ray.util.get_node_ip_address())
        return {"address": self._address}

    async def describe(self) -> dict[str, str]:
        """The address and a line for people. The first call also starts the caller's router."""
        return {"address": self._address, "detail": self._detail}

    async def __del__(self) -> None:
        if self._hosted is not None:
            await self._hosted.stop()


def target_application(config: Config, *, router_config: Mapping[str, Any], num_gpus: float) -> serve.Application:
    """The deployment `target`, bound to a configuration.

    router_config: Serve's RequestRouterConfig, as a mapping, of this deployment's handles.
    num_gpus: that a replica reserves; below 1 it shares one.
    """
    return serve.deployment(
        TargetReplica,
        name="target",
        num_replicas=config.target.num_replicas,
        # The engine's threads are its own business (num_threads): a whole CPU would keep three
        # deployments off a machine with two.
        ray_actor_options={"num_cpus": 0.1, "num_gpus": num_gpus},
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
        graceful_shutdown_wait_loop_s=0.1,
        request_router_config=dict(router_config),
    ).bind(config)
