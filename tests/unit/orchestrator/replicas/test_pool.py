"""Which replicas there are, and how they are reached."""

import asyncio
import itertools

import pytest

from orchestrator.replicas.directory import ReplicaDirectory
from pilotfish.errors import UnavailableError
from pilotfish.messages import CloseSequence, Proposal
from pilotfish.step_table import StepTable
from pilotfish.types import LoadReport
from tests.support.held_sequence import HeldSequence

BOTH = {"a": "a:1", "b": "b:2"}


async def test_the_pool_follows_the_directory(network, directory, running, until) -> None:
    async with running(network, directory) as pool:
        assert (await pool.acquire(5)).address == "a:1"
        directory.set_replicas("target", BOTH)
        await until(pool, lambda: pool.num_connected == 2)
        directory.set_replicas("target", {"b": "b:2"})
        await until(pool, lambda: pool.num_connected == 1)
        assert (await pool.acquire(5)).address == "b:2"


async def test_a_directory_written_by_another_thread_is_followed(network, directory, running, until) -> None:
    async with running(network, directory) as pool:
        await asyncio.to_thread(directory.set_replicas, "target", BOTH)
        await until(pool, lambda: pool.num_connected == 2)


async def test_a_replica_that_moves_is_dialled_at_its_new_address(network, directory, running, until) -> None:
    network.add("a:2")
    async with running(network, directory) as pool:
        await pool.acquire(5)
        directory.set_replicas("target", {"a": "a:2"})
        await until(pool, lambda: any(link.is_connected and link.address == "a:2" for link in pool.links))
        assert len(pool.links) == 1


async def test_acquire_waits_for_a_replica_and_tells_why_it_gave_up(network, running) -> None:
    directory = ReplicaDirectory()
    async with running(network, directory) as pool:
        with pytest.raises(UnavailableError, match=r"there is no target replica; waited 0\.01 s"):
            await pool.acquire(0.01)
        directory.set_replicas("target", {"c": "c:3"})
        with pytest.raises(UnavailableError, match="nobody listens on c:3"):
            await pool.acquire(0.05)
        network.add("c:3")
        assert (await pool.acquire(5)).replica_id == "c"


async def test_a_lost_replica_fails_its_sequences_and_is_dialled_again(network, directory, running) -> None:
    async with running(network, directory) as pool:
        sequence = HeldSequence(await pool.acquire(5))
        network.open_at("a:1").handlers.on_lost(UnavailableError("killed"))
        with pytest.raises(UnavailableError, match="was lost: killed"):
            await sequence.receive()
        assert not sequence.is_usable
        sequence.close()
        assert (await pool.acquire(5)).replica_id == "a"
        assert len(network.streams) == 2
        assert pool.num_sequences == 0


async def test_a_replica_that_falls_silent_is_lost(network, directory, running) -> None:
    clock = itertools.count(step=0.002)
    async with running(network, directory, clock=lambda: next(clock), silence_timeout_s=0.02) as pool:
        sequence = HeldSequence(await pool.acquire(5))
        with pytest.raises(UnavailableError, match=r"nothing was heard for 0\.02 s"):
            await sequence.receive()
        sequence.close()


async def test_events_reach_their_sequence_and_no_other(network, directory, running) -> None:
    async with running(network, directory) as pool:
        link = await pool.acquire(5)
        first, second = HeldSequence(link), HeldSequence(link)
        stream = network.open_at("a:1")
        stream.handlers.on_events([Proposal(second.sequence_id, 1, (5,)), Proposal(999, 1, (6,))])
        assert (await second.receive()).draft_token_ids == (5,)
        first.close()
        first.close()
        assert stream.sent[2:] == [CloseSequence(first.sequence_id)]
        stream.handlers.on_events([Proposal(first.sequence_id, 1, (7,))])
        second.close()


async def test_what_steps_cost_is_kept_until_the_connection_is_lost(network, directory, running, until) -> None:
    table = StepTable((1, 8), (8_000_000, 9_000_000))
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


async def test_a_replica_that_leaves_keeps_its_sequences_until_they_have_left(
    network, directory, running, until
) -> None:
    directory.set_replicas("target", BOTH)
    async with running(network, directory) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        sequence = HeldSequence(await pool.acquire(5, avoid={"b"}))
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


async def test_a_link_that_fails_for_a_reason_of_its_own_is_dialled_again(network, directory, caplog, running) -> None:
    connect, num_failures = network.connect, iter(range(2))

    async def fail_twice(address, handlers):
        if next(num_failures, None) is not None:
            raise ValueError("a defect")
        return await connect(address, handlers)

    network.connect = fail_twice
    async with running(network, directory) as pool:
        assert (await pool.acquire(5)).replica_id == "a"
    assert "a defect" in caplog.text


async def test_what_is_expected_of_the_router_is_what_it_does(network, running, until) -> None:
    directory = ReplicaDirectory()
    async with running(network, directory) as pool:
        assert pool.expected((1, 2)) is None
        directory.set_replicas("target", BOTH)
        await until(pool, lambda: pool.num_connected == 2)
        for _ in range(8):
            expected = pool.expected((1, 2))
            assert (await pool.acquire(5, preferred=expected.replica_id)) is expected
        HeldSequence(expected)
        assert pool.expected((1, 2)) is not expected
