"""Pools and links over streams in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

import pytest

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.replicas.reference import ModelReference
from orchestrator.replicas.remote_sequence import RemoteSequence
from orchestrator.replicas.routing import PrefixAwareRouter
from pilotfish.config import RoutingConfig
from pilotfish.errors import HandshakeError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import CloseSequence, Proposal
from pilotfish.step_table import StepTable
from pilotfish.types import BLOCK_SIZE, Limits, LoadReport, ModelInfo


class MemoryStream:
    def __init__(self, address, handlers, model, on_close) -> None:
        self.address = address
        self.on_close = on_close
        self.handlers = handlers
        self.model = model
        self.limits = Limits(max_draft_tokens=4, max_sequences=8)
        self.sent: list = []
        self.is_closed = False

    def send(self, command) -> None:
        self.sent.append(command)

    async def close(self) -> None:
        self.is_closed = True
        self.on_close()


class Network:
    """Who answers at which address; every stream ever made."""

    def __init__(self) -> None:
        self.models: dict[str, ModelInfo] = {}
        self.streams: list[MemoryStream] = []
        self.num_dials = 0
        self.second_stream_closed = asyncio.Event()

    def add(self, address: str, **model) -> None:
        values = {"model_id": "m", "tokenizer_fingerprint": "f", "vocab_size": 10, "max_context_tokens": 100} | model
        self.models[address] = ModelInfo(**values)

    async def connect(self, address, handlers) -> MemoryStream:
        self.num_dials += 1
        if address not in self.models:
            raise UnavailableError(f"nobody listens on {address}")
        on_close = self.second_stream_closed.set if len(self.streams) == 1 else lambda: None
        stream = MemoryStream(address, handlers, self.models[address], on_close)
        self.streams.append(stream)
        return stream

    def open_at(self, address: str) -> MemoryStream:
        (stream,) = [stream for stream in self.streams if stream.address == address and not stream.is_closed]
        return stream


@contextlib.asynccontextmanager
async def running(
    network: Network, directory: ReplicaDirectory, clock=time.monotonic, **options
) -> AsyncIterator[ReplicaPool]:
    pool = ReplicaPool("target", directory, network.connect, ModelReference().check, clock=clock, **options)
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()
    assert all(stream.is_closed for stream in network.streams)


async def until(pool: ReplicaPool, condition) -> None:
    """Wait for the pool to change until the condition holds."""
    changed = asyncio.Event()
    pool.on_change(changed.set)
    while not condition():
        changed.clear()
        await changed.wait()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def directory() -> ReplicaDirectory:
    return ReplicaDirectory()


async def test_the_pool_follows_the_directory(network, directory) -> None:
    network.add("a:1")
    network.add("b:2")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        assert (await pool.acquire(5)).address == "a:1"
        directory.set_replicas("target", {"a": "a:1", "b": "b:2"})
        await until(pool, lambda: pool.num_connected == 2)
        directory.set_replicas("target", {"b": "b:2"})
        await until(pool, lambda: pool.num_connected == 1)
        assert (await pool.acquire(5)).address == "b:2"


async def test_a_directory_written_by_another_thread_is_followed(network, directory) -> None:
    network.add("a:1")
    async with running(network, directory) as pool:
        await asyncio.to_thread(directory.set_replicas, "target", {"a": "a:1"})
        assert (await pool.acquire(5)).replica_id == "a"


async def test_a_replica_that_moves_is_dialled_at_its_new_address(network, directory) -> None:
    network.add("a:1")
    network.add("a:2")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        await pool.acquire(5)
        directory.set_replicas("target", {"a": "a:2"})
        await until(pool, lambda: any(link.is_connected and link.address == "a:2" for link in pool.links))
        assert len(pool.links) == 1


async def test_acquire_waits_for_a_replica_and_tells_why_it_gave_up(network, directory) -> None:
    async with running(network, directory) as pool:
        with pytest.raises(UnavailableError, match=r"there is no target replica; waited 0\.01 s"):
            await pool.acquire(0.01)
        directory.set_replicas("target", {"a": "a:1"})
        with pytest.raises(UnavailableError, match="nobody listens on a:1"):
            await pool.acquire(0.05)
        network.add("a:1")
        assert (await pool.acquire(5)).replica_id == "a"


async def test_requests_wait_in_line_for_room_first_come_first_served(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        await pool.acquire(5)
        held = [RemoteSequence(await pool.acquire(5), max_events=4) for _ in range(8)]
        served: list[int] = []

        async def request(number: int) -> None:
            sequence = RemoteSequence(await pool.acquire(5), max_events=4)
            served.append(number)
            sequence.close()

        requests = [asyncio.create_task(request(number)) for number in range(3)]
        with pytest.raises(ResourceExhaustedError, match=r"all its sequences are in use .* waited 0\.01 s"):
            await pool.acquire(0.01)
        assert served == []
        assert (await pool.connected(5)).num_sequences == 8
        requests[1].cancel()
        held.pop().close()
        await asyncio.wait(requests)
        assert served == [0, 2]
        for sequence in held:
            sequence.close()
        assert pool.num_sequences == 0


async def test_a_lost_replica_fails_its_sequences_and_is_dialled_again(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        sequence = RemoteSequence(await pool.acquire(5), max_events=4)
        network.open_at("a:1").handlers.on_lost(UnavailableError("killed"))
        with pytest.raises(UnavailableError, match="was lost: killed"):
            await sequence.receive()
        assert not sequence.is_usable
        sequence.close()
        assert (await pool.acquire(5)).replica_id == "a"
        assert len(network.streams) == 2
        assert pool.num_sequences == 0


async def test_a_target_with_another_model_is_refused_with_a_reason(network, directory) -> None:
    network.add("a:1")
    network.add("b:2", model_id="other")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        await pool.acquire(5)
        directory.set_replicas("target", {"a": "a:1", "b": "b:2"})
        await network.second_stream_closed.wait()
        assert pool.num_connected == 1
        assert "model_id 'other', the pool's first target 'm'" in next(
            link.problem for link in pool.links if link.replica_id == "b"
        )


async def test_the_least_loaded_replica_is_picked(network, directory) -> None:
    network.add("a:1")
    network.add("b:2")
    directory.set_replicas("target", {"a": "a:1", "b": "b:2"})
    async with running(network, directory) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        sequences = [RemoteSequence(pool.pick(), max_events=4) for _ in range(4)]
        assert sorted(sequence.link.replica_id for sequence in sequences) == ["a", "a", "b", "b"]
        for _ in range(2):
            network.open_at("a:1").handlers.on_load(LoadReport(num_sequences_running=2, num_sequences_waiting=1))
        assert pool.pick().replica_id == "b"
        assert pool.pick(avoid={"b"}).replica_id == "a"
        for sequence in sequences:
            sequence.close()
        assert pool.num_sequences == 0


async def test_draining_and_failing_replicas_are_not_picked(network, directory) -> None:
    network.add("a:1")
    network.add("b:2")
    directory.set_replicas("target", {"a": "a:1", "b": "b:2"})
    now_s = [0.0]
    async with running(network, directory, clock=lambda: now_s[0]) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        network.open_at("a:1").handlers.on_load(LoadReport(draining=True))
        assert pool.pick().replica_id == "b"
        failing = pool.pick()
        for now_s[0] in (1.0, 2.0, 3.0):
            failing.report_failure("too slow")
        assert pool.pick() is None
        assert "a:1: draining" in pool.absence_reason
        assert "b:2: too slow" in pool.absence_reason
        now_s[0] = 4.0
        assert pool.pick() is failing
        failing.report_success()
        assert failing.problem == ""


async def test_a_replica_that_falls_silent_is_lost(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    clock = itertools.count(step=0.002)
    async with running(network, directory, clock=lambda: next(clock), silence_timeout_s=0.02) as pool:
        sequence = RemoteSequence(await pool.acquire(5), max_events=4)
        with pytest.raises(UnavailableError, match=r"nothing was heard for 0\.02 s"):
            await sequence.receive()
        sequence.close()


async def test_events_reach_their_sequence_and_no_other(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        link = await pool.acquire(5)
        first, second = RemoteSequence(link, max_events=4), RemoteSequence(link, max_events=4)
        stream = network.open_at("a:1")
        stream.handlers.on_events([Proposal(second.sequence_id, 1, (5,)), Proposal(999, 1, (6,))])
        assert (await second.receive()).draft_token_ids == (5,)
        first.close()
        first.close()
        assert stream.sent == [CloseSequence(first.sequence_id)]
        stream.handlers.on_events([Proposal(first.sequence_id, 1, (7,))])
        second.close()


async def test_a_refused_handshake_is_reported(network, directory) -> None:
    async def refuse(address, handlers):
        raise HandshakeError("tokenizers differ")

    directory.set_replicas("target", {"a": "a:1"})
    pool = ReplicaPool("target", directory, refuse)
    pool.start()
    with pytest.raises(UnavailableError, match="a:1: tokenizers differ"):
        await pool.acquire(0.02)
    await pool.close()


async def test_a_failing_replica_is_tried_by_one_sequence_at_a_time(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    now_s = [0.0]
    async with running(network, directory, clock=lambda: now_s[0]) as pool:
        before = RemoteSequence(await pool.acquire(5), max_events=4)
        assert before.is_welcome
        for now_s[0] in (1.0, 2.0, 3.0):
            before.link.report_failure("too slow")
        assert not before.is_welcome
        assert before.is_usable
        now_s[0] = 3.5
        trial = RemoteSequence(pool.pick(), max_events=4)
        assert trial.is_welcome
        assert not before.is_welcome
        assert pool.pick() is None
        trial.close()
        assert pool.pick() is not None
        second = RemoteSequence(pool.pick(), max_events=4)
        second.link.report_failure("too slow")
        assert not second.is_welcome
        now_s[0] = 4.4
        assert pool.pick() is None
        now_s[0] = 4.5
        third = RemoteSequence(pool.pick(), max_events=4)
        third.link.report_success()
        assert all(sequence.is_welcome for sequence in (before, second, third))
        assert pool.pick() is not None
        for sequence in (before, second, third):
            sequence.close()


async def test_what_steps_cost_is_kept_until_the_connection_is_lost(network, directory) -> None:
    table = StepTable((1, 8), (8_000_000, 9_000_000))
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        link = await pool.acquire(5)
        assert link.step_table.step_s(4) == 0.0
        handlers = network.open_at("a:1").handlers
        handlers.on_load(LoadReport(step_table=table))
        handlers.on_load(LoadReport(num_sequences_running=1))
        assert link.step_table == table
        handlers.on_lost(UnavailableError("the network cable"))
        await until(pool, lambda: pool.num_connected == 0)
        await until(pool, lambda: pool.num_connected == 1)
        assert link.step_table == StepTable()


async def test_places_that_other_orchestrators_hold_are_left_to_them(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        own = RemoteSequence(await pool.acquire(5), max_events=4)
        handlers = network.open_at("a:1").handlers
        grown: list[int] = []
        pool.on_room(lambda: grown.append(pool.num_places))
        for _ in range(2):
            handlers.on_load(LoadReport(num_sequences_running=6, num_sequences_waiting=2))
        assert own.link.num_other_sequences == 7
        assert pool.num_places == 1
        assert pool.pick() is None
        waiting = asyncio.create_task(pool.acquire(5))
        handlers.on_load(LoadReport(num_sequences_running=7))
        assert (await waiting).replica_id == "a"
        assert grown == [2]
        own.close()


async def test_a_report_that_crosses_with_our_own_close_costs_no_place(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        own = [RemoteSequence(await pool.acquire(5), max_events=4) for _ in range(8)]
        handlers = network.open_at("a:1").handlers
        handlers.on_load(LoadReport(num_sequences_running=8))
        own.pop().close()
        handlers.on_load(LoadReport(num_sequences_running=8))
        assert pool.pick() is not None
        for sequence in own:
            sequence.close()


async def test_a_refused_place_is_not_asked_for_again_before_the_next_reports(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        link = await pool.acquire(5)
        link.report_full()
        assert pool.pick() is None
        network.open_at("a:1").handlers.on_load(LoadReport(num_sequences_running=3))
        assert pool.pick() is link


async def test_a_replica_that_leaves_the_directory_keeps_its_sequences_until_they_have_left(network, directory) -> None:
    network.add("a:1")
    network.add("b:2")
    directory.set_replicas("target", {"a": "a:1", "b": "b:2"})
    async with running(network, directory) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        sequence = RemoteSequence(await pool.acquire(5, avoid={"b"}), max_events=4)
        stream = network.open_at("a:1")
        directory.set_replicas("target", {"b": "b:2"})
        await until(pool, lambda: len(pool.links) == 1)
        assert sequence.is_usable
        assert not sequence.is_welcome
        assert pool.num_sequences == 1
        assert pool.pick(avoid={"b"}).replica_id == "b"
        stream.handlers.on_events([Proposal(sequence.sequence_id, 1, (5,))])
        assert (await sequence.receive()).draft_token_ids == (5,)
        closed = asyncio.Event()
        stream.on_close = closed.set
        sequence.close()
        await closed.wait()
        assert pool.num_sequences == 0
    assert network.num_dials == 2


async def test_a_request_that_has_begun_passes_the_line_and_waits_as_long_as_it_takes(network, directory) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    async with running(network, directory) as pool:
        await pool.acquire(5)
        held = [RemoteSequence(await pool.acquire(5), max_events=4) for _ in range(8)]
        served: list[str] = []

        async def request(name: str, **options) -> None:
            link = await pool.acquire(**options)
            served.append(name)
            held.append(RemoteSequence(link, max_events=4))

        requests = [asyncio.create_task(request(name, timeout_s=5)) for name in ("first", "second", "third")]
        continued = asyncio.create_task(request("continued", timeout_s=0.001, is_continued=True))
        with pytest.raises(ResourceExhaustedError):
            await pool.acquire(0.02)
        for _ in range(2):
            held.pop(0).close()
            await asyncio.wait((*requests, continued), timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
        await continued
        assert "third" not in served
        for _ in range(2):
            held.pop(0).close()
        await asyncio.gather(*requests)
        for sequence in held:
            sequence.close()


async def test_sequences_go_where_their_prefix_was_computed_until_that_replica_is_lost(network, directory) -> None:
    network.add("a:1")
    network.add("b:2")
    directory.set_replicas("target", {"a": "a:1", "b": "b:2"})
    prompt = tuple(range(4 * BLOCK_SIZE))
    async with running(network, directory, router=PrefixAwareRouter(RoutingConfig())) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        link = await pool.acquire(5, token_ids=prompt)
        sequences = [RemoteSequence(link, max_events=4) for _ in range(3)]
        answered = (*prompt, *range(100, 100 + 4 * BLOCK_SIZE))
        pool.remember(link, answered)
        assert await pool.acquire(5, token_ids=(*answered, 1, 2)) is link
        assert pool.router.counters.num_matched_blocks == 8
        assert (await pool.acquire(5, token_ids=tuple(range(900, 1000)))) is not link
        for sequence in sequences:
            sequence.close()
        network.open_at(link.address).handlers.on_lost(UnavailableError("killed"))
        await until(pool, lambda: pool.num_connected == 1)
        await until(pool, lambda: pool.num_connected == 2)
        counters = pool.router.counters
        num_matched = counters.num_matched_blocks
        await pool.acquire(5, token_ids=answered)
        assert counters.num_matched_blocks == num_matched


async def test_a_link_that_fails_for_a_reason_of_its_own_is_dialled_again(network, directory, caplog) -> None:
    network.add("a:1")
    directory.set_replicas("target", {"a": "a:1"})
    connect, num_failures = network.connect, iter(range(2))

    async def fail_twice(address, handlers):
        if next(num_failures, None) is not None:
            raise ValueError("a defect")
        return await connect(address, handlers)

    network.connect = fail_twice
    async with running(network, directory) as pool:
        assert (await pool.acquire(5)).replica_id == "a"
    assert "a defect" in caplog.text
