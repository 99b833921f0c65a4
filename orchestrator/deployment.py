"""The orchestrator as a Ray Serve deployment, and how it learns of replicas.

Serve informs every handle's request router which replicas live. `DirectoryRouter` mirrors that set,
with the gRPC addresses from the replicas' metadata, into the orchestrator's ReplicaDirectory.
Measured: a killed replica leaves the directory within 0.6 s, a new one enters within 1.6 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from orchestrator.replicas.directory import PoolName, ReplicaDirectory
from orchestrator.server import OrchestratorServer
from pilotfish.config import Config
from pilotfish.pools.options import fixed_options, scaling_options
from pilotfish.rpc.hosting import HostedService

logger = logging.getLogger(__name__)

READY_WAIT_S = 15.0
"""A target that is there is found within two seconds, on a busy machine within some more; for one that still loads
nobody need wait. Serve calls a replica slow after 30."""
WAKE_RETRY_S = 1.0
WAITING_REPORT_S = 1.0
"""Time between looks at the queue; target replicas hear of it while it is not empty."""
WAITING_TIMEOUT_S = 2.0

process_directory = ReplicaDirectory()
"""One for the process: Serve makes the routers itself and offers no way to hand them an object."""


class DirectoryRouter(RequestRouter):  # type: ignore[misc]
    """Mirrors the live replica set of its deployment into one pool of the directory."""

    def initialize_state(self, *, pool: PoolName) -> None:
        """Called by Serve with request_router_kwargs, before any replica is known."""
        self._pool = pool

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,  # noqa: ARG002
    ) -> list[list[RunningReplica]]:
        """All candidates are equal: only the call that starts the router goes through a handle."""
        return [candidate_replicas]

    def update_replicas(self, replicas: Sequence[RunningReplica]) -> None:
        super().update_replicas(replicas)
        self._mirror()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self._mirror()

    def _mirror(self) -> None:
        # Serve pickles this class by value, with copies of this module's globals; the import finds
        # the module of this process.
        from orchestrator.deployment import process_directory

        addresses = {
            replica.replica_id.unique_id: replica.replica_metadata["address"]
            for replica in self.curr_replicas.values()
            if "address" in replica.replica_metadata
        }
        process_directory.set_replicas(self._pool, addresses)


class OrchestratorReplica:
    """The public API on the configured address, fed by the routers of the two pools' handles."""

    def __init__(self, config: Config, pools: Mapping[PoolName, Any]) -> None:
        """pools: each pool's handle, or the name of the application that it is in."""
        self._config = config
        self._pools = dict(pools)
        self._tasks: list[asyncio.Task[None]] = []
        self._hosted: HostedService | None = None
        self._address = ""

    async def record_replica_metadata(self) -> dict[str, str]:
        """Start the server, and wait a little for a target; called once by Serve, for which this replica then runs:
        in an update those that it replaces answer until it can."""
        self._tasks = [asyncio.create_task(self._wake(name)) for name in self._pools]
        server = await OrchestratorServer.start(self._config, process_directory)
        self._hosted = HostedService(server, self._config)
        request_queue = server.service.request_queue
        report = report_waiting(lambda: request_queue.num_waiting, lambda: self._handle("target"))
        self._tasks.append(asyncio.create_task(report))
        self._address = server.address
        await server.wait_ready(READY_WAIT_S)
        return {"address": self._address}

    async def describe(self) -> dict[str, str]:
        """The public address and a line for people."""
        num_targets, num_drafts = (len(process_directory.replicas(name)) for name in ("target", "draft"))
        return {"address": self._address, "detail": f"{num_targets} target, {num_drafts} draft"}

    async def _handle(self, name: PoolName) -> Any:
        """The pool's handle. Raises RayServeException while its application is not there."""
        if isinstance(pool := self._pools[name], str):
            # It asks Serve's controller, and blocks.
            self._pools[name] = await asyncio.to_thread(serve.get_deployment_handle, name, app_name=pool)
        return self._pools[name]

    async def _wake(self, name: PoolName) -> None:
        """Make one call through the handle, which starts its router; waits for a first replica."""
        while True:
            try:
                await (await self._handle(name)).describe.remote()
            except (RayError, RayServeException) as error:
                logger.info("no replica of pool %s yet: %s", name, error)
                await asyncio.sleep(WAKE_RETRY_S)
            else:
                return

    async def __del__(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._hosted is not None:
            await self._hosted.stop()


async def report_waiting(num_waiting: Callable[[], int], target_handle: Callable[[], Awaitable[Any]]) -> None:
    """Report to the target replicas how many requests wait, while any do, for their pool's autoscaling. Never ends."""
    own_id, reported = secrets.token_hex(8), 0
    while True:
        await asyncio.sleep(WAITING_REPORT_S)
        waiting = num_waiting()
        if waiting or reported:
            # A replica that comes or goes may miss it: it is said again.
            with contextlib.suppress(RayError, RayServeException, TimeoutError):
                response = (await target_handle()).broadcast("note_waiting", own_id, waiting)
                await response.results_async(timeout_s=WAITING_TIMEOUT_S, return_exceptions=True)
        reported = waiting


def router_config(pool: PoolName) -> dict[str, Any]:
    """Serve's RequestRouterConfig, as a mapping, that has handles mirror a pool."""
    return {
        "request_router_class": "orchestrator.deployment:DirectoryRouter",
        "request_router_kwargs": {"pool": pool},
    }


def orchestrator_application(config: Config, pools: Mapping[PoolName, serve.Application | str]) -> serve.Application:
    """The deployment `orchestrator`.

    pools: those it drives, as parts of its own application, or as names of applications that they are in.
    """
    return serve.deployment(
        OrchestratorReplica,
        **scaling_options(config, "orchestrator"),
        **fixed_options(config),
    ).bind(config, dict(pools))
