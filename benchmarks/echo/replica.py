"""A target or draft replica over an EchoCore, in a process of its own: real gRPC in front of no engine at all."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop
from echo.core import FIRST_TOKEN_ID, NUM_TOKEN_IDS, EchoCore
from echo.engine import EchoEngine
from echo.worker import LIMITS

from draft_service.server import start_draft
from pilotfish.config import Config, DraftConfig, EngineConfig, TargetConfig, environment
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.frames import Service
from pilotfish.rpc.replica.server import ReplicaServer
from target_service.server import start_target

BENCHMARKS = Path(__file__).resolve().parent.parent


@contextlib.asynccontextmanager
async def replica(service: Service, *, has_worker: bool = False, tokenizer: str = "") -> AsyncIterator[str]:
    """Start one; gives its address.

    has_worker: the engine runs in a process of its own, as in production. tokenizer: the folder that its model is
    said to have, for an orchestrator.
    """
    arguments = [service, "--tokenizer", tokenizer, *(["--worker"] if has_worker else [])]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "echo.replica", *arguments),
        env=environment({"PYTHONPATH": f"{BENCHMARKS}:{BENCHMARKS.parent}"}),
        stdin=asyncio.subprocess.PIPE,  # its end stops the replica, should we be killed
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise SystemExit(f"the {service} replica did not start")
        yield address
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def serve(service: Service, has_worker: bool, tokenizer: str) -> None:
    """The replica's process."""
    engine_config = EngineConfig(max_sequences=LIMITS.max_sequences)
    config = Config(target=TargetConfig(port=0, engine=engine_config), draft=DraftConfig(port=0, engine=engine_config))
    engine: EngineClient
    if has_worker:
        engine = await ProcessEngine.start(config, service, worker_module="echo.worker")
    else:
        engine = EchoEngine(_core(tokenizer))
    server: ReplicaServer | ReplicaServer
    if service == "target":
        server = await start_target(config, engine=engine)
    else:
        server = await start_draft(config, engine=engine)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)
    print(server.address, flush=True)
    await stop.wait()
    await server.drain_and_stop(0)


def _core(folder: str) -> EchoCore:
    if not folder:
        return EchoCore(LIMITS, vocab_size=FIRST_TOKEN_ID + NUM_TOKEN_IDS)
    tokenizer = Tokenizer.load(folder)
    return EchoCore(LIMITS, fingerprint=tokenizer.fingerprint, tokenizer_path=folder, vocab_size=tokenizer.vocab_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("service", choices=("target", "draft"))
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--tokenizer", default="")
    options = parser.parse_args()
    uvloop.run(serve(options.service, options.worker, options.tokenizer))


if __name__ == "__main__":
    main()
