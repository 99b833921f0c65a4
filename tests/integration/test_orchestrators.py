"""Routing, admission and failover over real loopback gRPC: several orchestrators, several emulated replicas."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from orchestrator.servicer import CLIENT_ID_KEY
from pilotfish.config import Config, OrchestratorConfig, SpeculationConfig, TargetConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.errors import ResourceExhaustedError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.stream import CODECS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc
from pilotfish.types import Limits

VOCAB_SIZE = 50
LONG = 50_000


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of words; no weights."""
    folder = tmp_path_factory.mktemp("words")
    vocabulary = {f"t{index}": index for index in range(VOCAB_SIZE)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"model_type": "llama", "vocab_size": VOCAB_SIZE, "max_position_embeddings": 2 * LONG}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()
    return folder


class Orchestrator:
    """One orchestrator and a client of it."""

    def __init__(self, server: OrchestratorServer, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.service = server.service
        self.stub = inference_pb2_grpc.InferenceStub(channel)

    def call(self, prompt, max_tokens=40, client_id="", timeout=60):
        request = pb.GenerateRequest(
            tokens=pb.TokenPrompt(token_ids=prompt),
            max_tokens=max_tokens,
            temperature=0,
            speculation=pb.SpeculationOptions(mode=pb.SPECULATION_MODE_ON, num_speculative_tokens=4),
        )
        metadata = ((CLIENT_ID_KEY, client_id),) if client_id else ()
        return self.stub.Generate(request, timeout=timeout, metadata=metadata)

    async def generate(self, prompt, **options) -> tuple[int, ...]:
        messages = [message async for message in self.call(prompt, **options)]
        return tuple(token_id for message in messages for token_id in message.chunk.token_ids)


class Fleet:
    """Replicas in a directory, and orchestrators that read it; all on this event loop."""

    def __init__(self, folder: Path, exits: contextlib.AsyncExitStack) -> None:
        self.directory = ReplicaDirectory()
        self._folder = folder
        self._exits = exits
        self._engines: list[EmulatedEngine] = []

    async def add(self, pool, *, max_sequences=64, step_time_s=0.0) -> tuple[ReplicaServer, EmulatedEngine]:
        engine = EmulatedEngine(
            pool,
            language_model=HashLanguageModel(vocab_size=VOCAB_SIZE, first_token_id=2),
            tokenizer_fingerprint=Tokenizer.load(self._folder).fingerprint,
            max_context_tokens=2 * LONG,
            limits=Limits(max_draft_tokens=16, max_sequences=max_sequences),
            step_time_s=step_time_s,
        )
        server = await ReplicaServer.start(CODECS[pool], engine, host="127.0.0.1", port=0, port_setting="test.port")
        self._exits.push_async_callback(server.drain_and_stop, 0)
        self._engines.append(engine)
        self.directory.set_replicas(pool, {**self.directory.replicas(pool), server.address: server.address})
        return server, engine

    def remove(self, pool, server: ReplicaServer) -> None:
        """Out of the directory; the replica itself lives on."""
        others = {key: value for key, value in self.directory.replicas(pool).items() if key != server.address}
        self.directory.set_replicas(pool, others)

    async def orchestrator(self, **options) -> Orchestrator:
        options.setdefault("connect_timeout_s", 10)
        config = Config(
            target=TargetConfig(model=str(self._folder)),
            orchestrator=OrchestratorConfig(port=0, speculation=SpeculationConfig(draft_deadline_ms=5000), **options),
            cache_dir="unused",
        )
        server = await OrchestratorServer.start(config, self.directory)
        self._exits.push_async_callback(server.drain_and_stop, 0)
        channel = grpc.aio.insecure_channel(server.address)
        self._exits.push_async_callback(channel.close)
        for pool in (server.service.targets, server.service.drafts):
            await until(lambda pool=pool: pool.num_connected == len(pool.links))
        return Orchestrator(server, channel)

    async def nothing_is_left(self) -> None:
        await until(lambda: all(engine.num_sequences == 0 for engine in self._engines))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens elsewhere on this event loop; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110  # what is awaited has no event that a test could see
        await asyncio.sleep(0.005)


@pytest.fixture
async def fleet(model_folder: Path) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as exits:
        yield Fleet(model_folder, exits)


def prompts(count: int) -> list[list[int]]:
    return [[3 + number % 40, 4 + number // 40, 5] for number in range(count)]


async def test_orchestrators_that_share_replicas_do_not_confuse_their_sequences(fleet: Fleet) -> None:
    await fleet.add("target")
    await fleet.add("target")
    await fleet.add("draft")
    first, second = await fleet.orchestrator(), await fleet.orchestrator()
    alone = [await first.generate(prompt) for prompt in prompts(20)]
    answers = await asyncio.gather(
        *(orchestrator.generate(prompt) for prompt in prompts(20) for orchestrator in (first, second))
    )
    assert answers == [answer for answer in alone for _ in range(2)]
    assert len(set(alone)) > 15
    await fleet.nothing_is_left()


async def test_orchestrators_that_compete_for_places_refuse_nobody(fleet: Fleet) -> None:
    await fleet.add("target", max_sequences=3, step_time_s=0.001)
    first, second = await fleet.orchestrator(), await fleet.orchestrator()
    alone = [await first.generate(prompt) for prompt in prompts(12)]
    answers = await asyncio.gather(
        *(orchestrator.generate(prompt) for prompt in prompts(12) for orchestrator in (first, second))
    )
    assert answers == [answer for answer in alone for _ in range(2)]
    await fleet.nothing_is_left()


async def test_an_orchestrator_that_ends_takes_only_its_own_sequences_along(fleet: Fleet) -> None:
    _, engine = await fleet.add("target", step_time_s=0.001)
    first, second = await fleet.orchestrator(), await fleet.orchestrator()
    expected = await second.generate([3, 4, 5], max_tokens=300)
    going_down = [first.call([6, 7, number], max_tokens=LONG) for number in range(3, 6)]
    for call in going_down:
        await anext(aiter(call))
    staying = asyncio.create_task(second.generate([3, 4, 5], max_tokens=300))
    await until(lambda: engine.num_sequences == 4)
    await first.server.drain_and_stop(0)
    assert await staying == expected
    await fleet.nothing_is_left()


async def test_a_conversation_returns_to_the_replica_that_has_it_cached(fleet: Fleet) -> None:
    await fleet.add("target")
    await fleet.add("target")
    orchestrator = await fleet.orchestrator()
    conversation = [3 + number % 40 for number in range(64)]
    counters = orchestrator.service.targets.router.counters
    for turn in range(1, 4):
        answer = await orchestrator.generate(conversation, max_tokens=32)
        conversation += [*answer, 7, 8, 9]
        assert counters.num_by_prefix == turn - 1
    assert counters.num_matched_blocks == 6 + 8


async def test_a_full_queue_answers_with_a_hint_and_a_client_id_makes_a_client(fleet: Fleet) -> None:
    await fleet.add("target", step_time_s=0.001)
    orchestrator = await fleet.orchestrator(max_concurrent_requests=1, max_queued_requests_per_client=1)
    request_queue = orchestrator.service.request_queue
    running = orchestrator.call([3, 4, 5], max_tokens=LONG, client_id="a")
    await anext(aiter(running))
    waiting = asyncio.create_task(orchestrator.generate([6, 7], client_id="a"))
    await until(lambda: request_queue.num_waiting == 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator.generate([8, 9], client_id="a")
    error = error_from_rpc(caught.value)
    assert isinstance(error, ResourceExhaustedError)
    assert "1 requests of this client wait" in str(error)
    assert error.retry_after_s is not None
    other = asyncio.create_task(orchestrator.generate([8, 9], client_id="b"))
    await until(lambda: request_queue.num_waiting == 2)
    running.cancel()
    assert len(await waiting) == len(await other) == 40
    await until(lambda: request_queue.num_running == 0)


async def test_a_request_without_any_replica_left_is_told_after_the_connect_timeout(fleet: Fleet) -> None:
    server, _ = await fleet.add("target", step_time_s=0.001)
    orchestrator = await fleet.orchestrator(connect_timeout_s=0.1)
    call = orchestrator.call([3, 4, 5], max_tokens=LONG)
    chunks = aiter(call)
    await anext(chunks)
    await server.drain_and_stop(0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in chunks:
            pass
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "no target replica can be used" in caught.value.details()
    assert "waited 0.1 s" in caught.value.details()
    await until(lambda: orchestrator.service.num_active_requests == 0)
