"""Services as processes, and signals that no program can answer: SIGKILL, SIGSTOP."""

import asyncio
import contextlib
import dataclasses
import re
import signal
import sys
from pathlib import Path

import grpc.aio
import pytest

from pilotfish.config import config_to_yaml
from pilotfish.rpc.v1 import inference_pb2_grpc
from tests.support.until import until

COUPLED = {"temperature": 0.9, "seed": 11}


class Processes:
    """`python -m SERVICE` with the cluster's configuration; what still runs at the end is killed."""

    def __init__(self, cluster, folder: Path) -> None:
        self._cluster = cluster
        self._path = folder / "config.yaml"
        self._running: list[asyncio.subprocess.Process] = []

    async def start(self, service: str, targets=(), drafts=()):
        """The process, and its address."""
        config = self._cluster.config()
        orchestrator = dataclasses.replace(
            config.orchestrator, target_addresses=tuple(targets), draft_addresses=tuple(drafts)
        )
        self._path.write_text(config_to_yaml(dataclasses.replace(config, orchestrator=orchestrator)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", service, "--config", str(self._path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._running.append(process)
        found = re.search(r"ready on (\S+)", (await process.stdout.readline()).decode())
        assert found
        return process, found[1]

    async def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


@pytest.fixture
async def processes(cluster, tmp_path: Path):
    processes = Processes(cluster, tmp_path)
    try:
        yield processes
    finally:
        await processes.close()


@contextlib.asynccontextmanager
async def client(address: str):
    async with grpc.aio.insecure_channel(address) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


async def test_replicas_free_what_lost_orchestrators_held(cluster, processes) -> None:
    """One is killed, one stopped; those of another go on."""
    other = await cluster.start(2, 1)
    proxies = {replica: await replica.link() for replica in cluster.replicas}
    addresses = [
        [proxies[replica].address for replica in cluster.replicas if replica.pool == pool]
        for pool in ("target", "draft")
    ]
    doomed = await asyncio.gather(*(processes.start("orchestrator", *addresses) for _ in range(2)))
    async with client(doomed[0][1]) as killed, client(doomed[1][1]) as stopped:
        lost = [cluster.ask(stub, prompt, **COUPLED, max_tokens=4000) for stub in (killed, stopped) for prompt in "ab"]
        for call in lost:
            await call.has_said(20)
        own = other.ask(**COUPLED, max_tokens=400)
        await own.has_said(20)
        for (process, _), number in zip(doomed, (signal.SIGKILL, signal.SIGSTOP), strict=True):
            process.send_signal(number)
        await own.finish()
        await until(lambda: not any(replica.num_held for replica in cluster.replicas))
        for call in lost:
            call.call.cancel()
    # One that takes their place serves at once.
    _, address = await processes.start("orchestrator", *addresses)
    async with client(address) as stub:
        await cluster.ask(stub, **COUPLED).finish()
    await cluster.nothing_is_left()


async def test_signals_to_replicas_reach_no_client(cluster, processes) -> None:
    (first, first_address), (second, second_address), (draft, draft_address) = await asyncio.gather(
        *(processes.start(service) for service in ("target_service", "target_service", "draft_service"))
    )
    _, address = await processes.start("orchestrator", (first_address, second_address), (draft_address,))
    async with client(address) as stub:
        asked = [{}, {"steps": {"level": "step", "step_max_tokens": 8, "step_threshold": 5}}] * 2
        calls = [
            cluster.ask(stub, prompt, **COUPLED, **options, max_tokens=600)
            for prompt, options in zip(("one", "two", "three", "four"), asked, strict=True)
        ]
        for process, number in ((draft, signal.SIGSTOP), (first, signal.SIGKILL), (draft, signal.SIGCONT)):
            for call in calls:
                await call.has_said(len(call.token_ids) + 40)
            process.send_signal(number)
        for call, options in zip(calls, asked, strict=True):
            summary = await call.finish()
            assert bool(summary.speculation.num_accepted_steps) == bool(options)
        assert second.returncode is None
