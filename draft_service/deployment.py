"""The draft service as a Ray Serve deployment. Serve places, watches and replaces; tokens never pass it."""

from __future__ import annotations

import dataclasses

import ray

from draft_service.server import start_draft
from pilotfish.rpc.hosting import PoolReplica, on_free_port


class DraftReplica(PoolReplica):
    async def record_replica_metadata(self) -> dict[str, str]:
        """Start the server; called once by Serve."""
        server = await start_draft(dataclasses.replace(self._config, draft=on_free_port(self._config.draft)))
        detail = f"proposer {server.model.proposer}, model {server.model.model_id}"
        return self._host(server, node_ip=ray.util.get_node_ip_address(), detail=detail)
