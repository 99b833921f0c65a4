"""Orchestrators as processes, and signals that no program can answer: SIGKILL, SIGSTOP."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio

from pilotfish.config import config_to_yaml
from pilotfish.rpc.v1 import inference_pb2_grpc
from tests.support.service_process import ServiceProcess
from tests.support.until import until

COUPLED = {"temperature": 0.9, "seed": 11}


def arguments_of(config, path: Path) -> list[str]:
    """Of an orchestrator's command line."""
    path.write_text(config_to_yaml(config))
    return ["--config", str(path), "--set", "orchestrator.http.port=0"]


@contextlib.asynccontextmanager
async def orchestrators(arguments: list[str], num_processes: int) -> AsyncIterator[list[ServiceProcess]]:
    """Started together; what still runs at the end is killed."""
    with contextlib.ExitStack() as exits:
        started = [ServiceProcess("orchestrator", arguments) for _ in range(num_processes)]
        for process in started:
            exits.callback(process.kill)
            process.start()
        for process in started:
            await asyncio.to_thread(process.wait_listening)
        yield started


@contextlib.asynccontextmanager
async def client(process: ServiceProcess):
    async with grpc.aio.insecure_channel(process.address) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


async def test_replicas_free_what_lost_orchestrators_held(cluster, tmp_path: Path) -> None:
    """One is killed, one stopped; those of another go on."""
    other = await cluster.start(2, 1)
    proxies = {replica: await replica.link() for replica in cluster.replicas}
    targets, drafts = (tuple(proxies[each].address for each in pool) for pool in (cluster.targets(), cluster.drafts()))
    config = cluster.config()
    section = dataclasses.replace(config.orchestrator, target_addresses=targets, draft_addresses=drafts)
    arguments = arguments_of(dataclasses.replace(config, orchestrator=section), tmp_path / "config.yaml")
    async with (
        orchestrators(arguments, 2) as (first, second),
        client(first) as killed,
        client(second) as stopped,
    ):
        lost = [cluster.ask(stub, prompt, **COUPLED, max_tokens=4000) for stub in (killed, stopped) for prompt in "ab"]
        for call in lost:
            await call.has_said(20)
        own = other.ask(**COUPLED, max_tokens=400)
        await own.has_said(20)
        first.kill()
        second.freeze()
        await own.finish()
        await until(lambda: not any(replica.num_held for replica in cluster.replicas))
        for call in lost:
            call.call.cancel()
    # One that takes their place serves at once.
    async with orchestrators(arguments, 1) as (next_one,), client(next_one) as stub:
        await cluster.ask(stub, **COUPLED).finish()
    await cluster.nothing_is_left()
