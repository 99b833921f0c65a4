"""A replica that computes nothing, in two processes as in production: gRPC front, and engine that answers at once."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from pilotfish.config import Config, environment
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.engine.process.wire import EngineOutput, Ready, WorkerSocket, encoder, input_decoder
from pilotfish.messages import Command, Event, Opened, OpenSequence, Proposal, Propose, Verdict, Verify
from pilotfish.rpc.frames import Service
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.stream import CODECS
from pilotfish.types import Limits, LoadReport, ModelInfo

BENCHMARKS = Path(__file__).resolve().parent.parent
MODEL = ModelInfo(model_id="echo", tokenizer_fingerprint="echo", vocab_size=1000, max_context_tokens=1 << 20)
LIMITS = Limits(max_draft_tokens=16, max_sequences=1024)


@contextlib.asynccontextmanager
async def replica(service: Service) -> AsyncIterator[str]:
    """Start one; gives its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.echo", "--role", service),
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


async def serve(service: Service) -> None:
    """The front."""
    engine = await ProcessEngine.start(Config(), service, worker_module="shared.echo")
    server = await ReplicaServer.start(CODECS[service], engine, host="127.0.0.1", port=0, port_setting="none")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    print(server.address, flush=True)
    await stop.wait()
    await server.drain_and_stop(0)


def work(front: WorkerSocket) -> None:
    """The engine, in the place of pilotfish.engine.process.worker."""
    front.receive()  # what it is to load
    front.send(encoder.encode(Ready(MODEL, LIMITS)))
    while True:
        commands = [command for data in front.receive() for command in input_decoder.decode(data).commands]
        events = [event for command in commands if (event := answer_to(command)) is not None]
        front.send(encoder.encode(EngineOutput(events, LoadReport())))


def answer_to(command: Command) -> Event | None:
    """Every draft is right."""
    match command:
        case OpenSequence():
            return Opened(command.sequence_id, 0)
        case Propose():
            return Proposal(command.sequence_id, command.base_length, tuple(range(command.num_draft_tokens)))
        case Verify():
            drafts = command.draft_token_ids
            return Verdict(command.sequence_id, command.base_length, len(drafts), len(drafts), (*drafts, 1))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("target", "draft"), required=True)
    parser.add_argument("--socket", type=int, help="to its front, of an engine")
    options = parser.parse_args()
    if options.socket is None:
        uvloop.run(serve(options.role))
    else:
        work(WorkerSocket(options.socket))


if __name__ == "__main__":
    main()
