"""A cluster in one process: emulated engines behind the services' own servers, every link through a fault proxy.

What an undisturbed run says is known beforehand, from the emulated language model itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from draft_service.server import start_draft
from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, EmulationConfig, OrchestratorConfig, SpeculationConfig
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost, profile_to_yaml
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder, spoken_tokens
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc
from pilotfish.types import SamplingParams
from target_service.server import start_target
from tests.support.conditions import Conditions
from tests.support.fault_proxy import FaultProxy
from tests.support.until import until

START = {"target": start_target, "draft": start_draft}
NOWHERE = "127.0.0.1:1"  # nobody listens there
PROFILE = HardwareProfile(
    name="test",
    description="steps long enough that a fault finds answers under way",
    target=RooflineCost(weights_s=0.002, token_s=0.0),
    draft=RooflineCost(weights_s=0.0002, token_s=0.0),
    kv_cache_tokens=1 << 16,
    draft_kv_cache_tokens=1 << 16,
    max_sequences=64,
    max_batch_tokens=512,
    max_context_tokens=4096,
)


class Replica:
    """One replica of either pool. It may die and come back; who is connected to it is `links`."""

    def __init__(self, cluster: Cluster, pool: str) -> None:
        self.pool = pool
        self.name = f"{pool}-{len(cluster.replicas)}"
        self.links: list[FaultProxy] = []
        self.is_running = False
        self._cluster = cluster

    async def start(self, model_name="test") -> None:
        """Start, or come back, behind the same addresses."""
        config = self._cluster.config(model_name)
        self.engine = start_emulated_engine(config, self.pool)
        self._server = await START[self.pool](config, engine=self.engine)
        self.is_running = True
        for link in self.links:
            link.redirect(self._server.address)

    async def kill(self) -> None:
        """All connections are reset, nobody listens any more, and nobody was told."""
        if not self.is_running:
            return
        self.is_running = False
        for link in self.links:
            link.redirect(NOWHERE)
            link.apply()
            link.reset()
        await self._server.drain_and_stop(0)

    async def drain(self) -> None:
        """As on SIGTERM: what is open may end, or goes elsewhere."""
        self.is_running = False
        await self._server.drain_and_stop(10)

    def apply(self, conditions: Conditions | None = None, direction="both") -> None:
        """On its links to all orchestrators."""
        for link in self.links:
            link.apply(conditions, direction)

    async def suffer(self, fault: str) -> None:
        match fault:
            case "killed":
                await self.kill()
            case "reset":
                self.links[0].reset()
            case "machine lost":
                self.links[0].half_open()
            case _:
                self.apply(Conditions(**{fault: True}))

    async def link(self) -> FaultProxy:
        proxy = FaultProxy(self._server.address if self.is_running else NOWHERE, seed=len(self.links))
        await proxy.start()
        self.links.append(proxy)
        return proxy

    @property
    def num_held(self) -> int:
        """Sequences and KV blocks that it holds."""
        load = self.engine.core.load()
        return load.num_sequences_running + load.num_sequences_waiting + load.num_kv_blocks_used


class Orchestrator:
    """One orchestrator, with a link of its own to each replica."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.directory = ReplicaDirectory()
        self.links: dict[str, FaultProxy] = {}

    async def start(self, **options) -> None:
        for replica in self._cluster.replicas:
            await self.discover(replica)
        self.server = await OrchestratorServer.start(self._cluster.config(**options), self.directory)
        self.channel = grpc.aio.insecure_channel(self.server.address)
        self.stub = inference_pb2_grpc.InferenceStub(self.channel)
        for replica in self._cluster.replicas:
            await until(lambda replica=replica: self.is_connected(replica))

    async def discover(self, replica: Replica) -> None:
        proxy = self.links[replica.name] = await replica.link()
        known = self.directory.replicas(replica.pool)
        self.directory.set_replicas(replica.pool, {**known, replica.name: proxy.address})

    def forget(self, replica: Replica) -> None:
        known = self.directory.replicas(replica.pool)
        self.directory.set_replicas(
            replica.pool, {name: address for name, address in known.items() if name != replica.name}
        )

    def replica_link(self, replica: Replica):
        """The orchestrator's own view of it; None before it has looked into the directory."""
        service = self.server.service
        pool = service.targets if replica.pool == "target" else service.drafts
        return next((link for link in pool.links if link.replica_id == replica.name), None)

    def is_connected(self, replica: Replica) -> bool:
        link = self.replica_link(replica)
        return link is not None and link.is_connected

    def ask(self, prompt="Once upon a time", **fields) -> Call:
        return self._cluster.ask(self.stub, prompt, **fields)

    @property
    def num_held(self) -> int:
        service, queue = self.server.service, self.server.service.request_queue
        return service.targets.num_sequences + service.drafts.num_sequences + queue.num_running + queue.num_waiting

    async def stop(self) -> None:
        await self.channel.close()
        await self.server.drain_and_stop(0)


class Call:
    """A request under way, and what it has said so far."""

    def __init__(self, cluster: Cluster, stub, prompt: str, fields: dict) -> None:
        fields = {"max_tokens": 120, "temperature": 0, "ignore_eos": True, "mode": pb.SPECULATION_MODE_ON, **fields}
        self._steps = fields.pop("steps", {})
        speculation = pb.SpeculationOptions(mode=fields.pop("mode"), num_speculative_tokens=4, **self._steps)
        self._cluster, self._prompt = cluster, prompt
        self._sampling = SamplingParams(
            temperature=fields["temperature"], seed=fields.get("seed", 0), max_tokens=fields["max_tokens"]
        )
        self.call = stub.Generate(pb.GenerateRequest(text=prompt, speculation=speculation, **fields), timeout=60)
        self.token_ids: list[int] = []
        self.text, self.summary = "", None

    async def has_said(self, num_tokens: int) -> None:
        """Read until it has said that much; then it is in the middle of its answer."""
        while len(self.token_ids) < num_tokens:
            await self._read()
        assert len(self.token_ids) < self._sampling.max_tokens

    async def finish(self):
        """Read the rest: what an undisturbed run says, or as much of it as steps make lossy. Returns the summary."""
        while self.summary is None:
            await self._read()
        expected = self._cluster.expected(self._prompt, self._sampling)
        if self._steps:
            expected = self.token_ids[: len(expected)]
        assert self.token_ids == expected
        assert self.text == self._cluster.tokenizer.decode(expected)
        return self.summary

    async def _read(self) -> None:
        message = await self.call.read()
        assert message is not grpc.aio.EOF
        if message.HasField("summary"):
            self.summary = message.summary
        else:
            self.token_ids += message.chunk.token_ids
            self.text += message.chunk.text


class Cluster:
    """Replicas, orchestrators and proxies, all on this event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._exits = contextlib.AsyncExitStack()
        self.replicas: list[Replica] = []
        self.orchestrators: list[Orchestrator] = []
        self.tokenizer = Tokenizer.load(emulated_tokenizer_folder(self.config()))
        spoken = spoken_tokens(self.tokenizer)
        self._language_model = HashLanguageModel(vocab_size=spoken.stop, first_token_id=spoken.start)

    def config(self, model_name: str = "test", **options) -> Config:
        """options: of the orchestrator."""
        path = self._folder / f"{model_name}.yaml"
        path.write_text(profile_to_yaml(dataclasses.replace(PROFILE, name=model_name)))
        options.setdefault("speculation", SpeculationConfig(draft_deadline_ms=200, allow_lossy=True))
        options.setdefault("silence_timeout_s", 1.0)
        config = Config(
            cache_dir=str(self._folder),
            emulation=EmulationConfig(profile=str(path)),
            orchestrator=OrchestratorConfig(port=0, connect_timeout_s=20, **options),
        )
        return dataclasses.replace(
            config,
            target=dataclasses.replace(config.target, port=0),
            draft=dataclasses.replace(config.draft, port=0),
        )

    async def add(self, pool: str) -> Replica:
        """Another replica, known to the orchestrators there are."""
        replica = Replica(self, pool)
        self._exits.push_async_callback(replica.kill)
        await replica.start()
        self.replicas.append(replica)
        for orchestrator in self.orchestrators:
            await orchestrator.discover(replica)
        return replica

    async def serve(self, **options) -> Orchestrator:
        """Another orchestrator, connected to all replicas."""
        orchestrator = Orchestrator(self)
        await orchestrator.start(**options)
        self._exits.push_async_callback(orchestrator.stop)
        self.orchestrators.append(orchestrator)
        return orchestrator

    async def start(self, num_targets: int, num_drafts: int, **options) -> Orchestrator:
        """The replicas and an orchestrator."""
        for _ in range(num_targets):
            await self.add("target")
        for _ in range(num_drafts):
            await self.add("draft")
        return await self.serve(**options)

    def targets(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.pool == "target"]

    def drafts(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.pool == "draft"]

    def ask(self, stub, prompt="Once upon a time", **fields) -> Call:
        """A request to any orchestrator."""
        return Call(self, stub, prompt, fields)

    def expected(self, prompt: str, sampling: SamplingParams) -> list[int]:
        token_ids = list(self.tokenizer.encode(prompt))
        start = len(token_ids)
        for _ in range(sampling.max_tokens):
            token_ids.append(self._language_model.next_token(token_ids, sampling))
        return token_ids[start:]

    async def nothing_is_left(self) -> None:
        """Sequences, KV blocks and requests go back to zero wherever something runs."""
        holders = [replica for replica in self.replicas if replica.is_running] + self.orchestrators
        await until(lambda: not any(holder.num_held for holder in holders))

    async def close(self) -> None:
        await self._exits.aclose()
        for replica in self.replicas:
            for link in replica.links:
                await link.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        await cluster.close()


@pytest.fixture(params=["killed", "frozen", "partitioned", "reset", "machine lost"])
def fault(request) -> str:
    return request.param
