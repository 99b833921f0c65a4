"""Target and draft service: an engine behind their stream, as their section of the configuration says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from pilotfish.config import Config
from pilotfish.messages import EngineClient
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.listening import require_free_port
from pilotfish.rpc.replica.server import ReplicaServer


async def start_replica(
    config: Config,
    codec: FrameCodec,
    start_engine: Callable[[], Awaitable[EngineClient]],
    *,
    engine: EngineClient | None = None,
    proposer: str = "",
) -> ReplicaServer:
    """Start the engine, unless one is given, which is then owned, and serve it.

    proposer: what peers are told of an engine that is started here; empty: what it says itself.
    Raises: what start_engine does; UnavailableError when an address cannot be had; ConfigError when strangers would be
    served.
    """
    service = codec.service
    section = config.target if service == "target" else config.draft
    security = LinkSecurity(config.security.internal)
    security.check_host(section.host, f"{service}.host")
    if engine is None:
        await require_free_port(section.host, section.port, f"{service}.port")
        await require_free_port(config.telemetry.metrics_host, section.metrics_port, f"{service}.metrics_port")
        engine = await start_engine()
    else:
        proposer = ""
    return await ReplicaServer.start(
        codec,
        engine,
        host=section.host,
        port=section.port,
        port_setting=f"{service}.port",
        model=msgspec.structs.replace(engine.model, proposer=proposer) if proposer else None,
        telemetry=config.telemetry,
        metrics_port=section.metrics_port,
        security=security,
    )
