"""`python -m SERVICE --config FILE --set section.key=value`: one service in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import uvloop

from pilotfish.config import Config, load_config
from pilotfish.errors import PilotfishError
from pilotfish.rpc.process_memory import settle_memory
from pilotfish.rpc.server import Service
from pilotfish.telemetry.logs import configure_logging

ServiceT = TypeVar("ServiceT", bound=Service)


def run_service(
    name: str,
    start: Callable[[Config], Awaitable[ServiceT]],
    describe: Callable[[ServiceT], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run until SIGINT or SIGTERM (exit status 0) or a PilotfishError (one line on stderr, exit status 1).

    After the first signal, what is open has deployment.orchestrator.drain_s to end; a second one ends it at once.

    Prints `NAME ready on HOST:PORT (DESCRIPTION)` on standard output when the service is ready.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file; else $PILOTFISH_CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", help="may be repeated")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config, options.set)
        configure_logging(config.log_level, config.telemetry.log_format, name)
        uvloop.run(_serve(name, start, describe, config))
    except PilotfishError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


async def _serve(
    name: str, start: Callable[[Config], Awaitable[ServiceT]], describe: Callable[[ServiceT], str], config: Config
) -> None:
    signals = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.release)
    interrupted = asyncio.create_task(signals.acquire())
    try:
        server = await _unless(interrupted, start(config))
        if server is None:
            return
        settle_memory()
        with contextlib.suppress(OSError):  # a full disk takes a line, not the service
            print(f"{name} ready on {server.address} ({describe(server)})", flush=True)
        try:
            await _unless(interrupted, server.wait_closed())
        finally:
            await _stop(server, config.deployment.orchestrator.drain_s, signals)
    finally:
        interrupted.cancel()


async def _stop(server: Service, drain_s: float, signals: asyncio.Semaphore) -> None:
    """Drain, unless a second signal says that it takes too long."""
    impatience = asyncio.create_task(signals.acquire())
    try:
        await _unless(impatience, server.drain_and_stop(drain_s))
        if impatience.done():
            await server.drain_and_stop(0)
    finally:
        impatience.cancel()


ResultT = TypeVar("ResultT")


async def _unless(interrupted: asyncio.Task[bool], work: Awaitable[ResultT]) -> ResultT | None:
    """The work's result; None, with the work cancelled, when the interruption comes first."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, interrupted), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        task.cancel()
        await asyncio.wait((task,))
