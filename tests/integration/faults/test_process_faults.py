"""Services as processes, and signals that no program can answer: SIGKILL, SIGSTOP."""

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


def orchestrator_of(cluster, targets, drafts, path: Path) -> ServiceProcess:
    config = cluster.config()
    section = dataclasses.replace(config.orchestrator, target_addresses=tuple(targets), draft_addresses=tuple(drafts))
    path.write_text(config_to_yaml(dataclasses.replace(config, orchestrator=section)))
    return ServiceProcess("orchestrator", ["--config", str(path), "--set", "orchestrator.http.port=0"])


@contextlib.asynccontextmanager
async def running(*processes: ServiceProcess) -> AsyncIterator[None]:
    """Started together; what still runs at the end is killed."""
    with contextlib.ExitStack() as exits:
        for process in processes:
            exits.callback(process.kill)
            process.start()
        for process in processes:
            await asyncio.to_thread(process.wait_listening)
        yield


@contextlib.asynccontextmanager
async def client(process: ServiceProcess):
    async with grpc.aio.insecure_channel(process.address) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


async def test_replicas_free_what_lost_orchestrators_held(cluster, tmp_path: Path) -> None:
    """One is killed, one stopped; those of another go on."""
    other = await cluster.start(2, 1)
    proxies = {replica: await replica.link() for replica in cluster.replicas}
    addresses = [[proxies[each].address for each in pool] for pool in (cluster.targets(), cluster.drafts())]
    first, second, third = (orchestrator_of(cluster, *addresses, tmp_path / "config.yaml") for _ in range(3))
    async with running(first, second), client(first) as killed, client(second) as stopped:
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
    async with running(third), client(third) as stub:
        await cluster.ask(stub, **COUPLED).finish()
    await cluster.nothing_is_left()


async def test_signals_to_replicas_reach_no_client(cluster, tmp_path: Path) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_text(config_to_yaml(cluster.config()))
    services = ("target_service", "target_service", "draft_service")
    first, second, draft = (ServiceProcess(service, ["--config", str(path)]) for service in services)
    addresses = (first.address, second.address), (draft.address,)
    orchestrator = orchestrator_of(cluster, *addresses, tmp_path / "config.yaml")
    async with running(first, second, draft), running(orchestrator), client(orchestrator) as stub:
        asked = [{}, {"steps": {"level": "step", "step_max_tokens": 8, "step_threshold": 5}}] * 2
        calls = [
            cluster.ask(stub, prompt, **COUPLED, **options, max_tokens=600)
            for prompt, options in zip(("one", "two", "three", "four"), asked, strict=True)
        ]
        for act in (draft.freeze, first.kill, draft.thaw):
            for call in calls:
                await call.has_said(len(call.token_ids) + 40)
            act()
        for call, options in zip(calls, asked, strict=True):
            summary = await call.finish()
            assert bool(summary.speculation.num_accepted_steps) == bool(options)
        assert not second.has_ended
