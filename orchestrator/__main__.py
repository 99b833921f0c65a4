"""`python -m orchestrator --config FILE --set section.key=value`: the orchestrator as a process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import uvloop

from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, load_config
from pilotfish.errors import PilotfishError

_GRACE_S = 5.0
"""Running requests get this long to end after SIGTERM or SIGINT."""


async def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; print one line when ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starting = asyncio.create_task(_started(config))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    server = starting.result()
    await stopping
    await server.drain_and_stop(_GRACE_S)


async def _started(config: Config) -> OrchestratorServer:
    server = await OrchestratorServer.start(config)
    try:
        await server.wait_ready(config.orchestrator.connect_timeout_s)
    except asyncio.CancelledError:
        await server.drain_and_stop(0)
        raise
    service = server.service
    print(
        f"orchestrator ready on {server.address} (model {config.target.model}, "
        f"{service.targets.num_connected} target, {service.drafts.num_connected} draft)",
        flush=True,
    )
    return server


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator", description="Pilotfish's public API.")
    parser.add_argument("--config", metavar="FILE", help="YAML configuration; all defaults without it")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="override, section.key=value")
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.config, arguments.set)
        logging.basicConfig(
            level=config.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        uvloop.run(serve(config))
    except PilotfishError as error:
        print(f"orchestrator: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
