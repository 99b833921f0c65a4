"""Which replica is chosen, and who waits for a place."""

import asyncio

import pytest

from orchestrator.replicas.routing import PrefixAwareRouter
from pilotfish.config import RoutingConfig
from pilotfish.errors import ResourceExhaustedError, UnavailableError
from pilotfish.types import BLOCK_SIZE, LoadReport
from tests.support.held_sequence import HeldSequence

BOTH = {"a": "a:1", "b": "b:2"}


async def test_requests_wait_in_line_for_room_first_come_first_served(network, directory, running) -> None:
    async with running(network, directory) as pool:
        await pool.acquire(5)
        held = [HeldSequence(await pool.acquire(5)) for _ in range(8)]
        served: list[int] = []

        async def request(number: int) -> None:
            sequence = HeldSequence(await pool.acquire(5))
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


async def test_the_least_loaded_replica_is_picked(network, directory, running, until) -> None:
    directory.set_replicas("target", BOTH)
    async with running(network, directory) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        sequences = [HeldSequence(pool.pick()) for _ in range(4)]
        assert sorted(sequence.link.replica_id for sequence in sequences) == ["a", "a", "b", "b"]
        for _ in range(2):
            network.open_at("a:1").handlers.on_load(LoadReport(num_sequences_running=2, num_sequences_waiting=1))
        assert pool.pick().replica_id == "b"
        assert pool.pick(avoid={"b"}).replica_id == "a"
        for sequence in sequences:
            sequence.close()
        assert pool.num_sequences == 0


async def test_draining_and_failing_replicas_are_not_picked(network, directory, running, until) -> None:
    directory.set_replicas("target", BOTH)
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


async def test_a_failing_replica_is_tried_by_one_sequence_at_a_time(network, directory, running) -> None:
    now_s = [0.0]
    async with running(network, directory, clock=lambda: now_s[0]) as pool:
        before = HeldSequence(await pool.acquire(5))
        assert before.is_welcome
        for now_s[0] in (1.0, 2.0, 3.0):
            before.link.report_failure("too slow")
        assert not before.is_welcome
        assert before.is_usable
        now_s[0] = 3.5
        trial = HeldSequence(pool.pick())
        assert trial.is_welcome
        assert not before.is_welcome
        assert pool.pick() is None
        trial.close()
        assert pool.pick() is not None
        second = HeldSequence(pool.pick())
        second.link.report_failure("too slow")
        assert not second.is_welcome
        now_s[0] = 4.4
        assert pool.pick() is None
        now_s[0] = 4.5
        third = HeldSequence(pool.pick())
        third.link.report_success()
        assert all(sequence.is_welcome for sequence in (before, second, third))
        assert pool.pick() is not None
        for sequence in (before, second, third):
            sequence.close()


async def test_places_that_other_orchestrators_hold_are_left_to_them(network, directory, running) -> None:
    async with running(network, directory) as pool:
        own = HeldSequence(await pool.acquire(5))
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


async def test_a_refused_place_is_not_asked_for_again_before_the_next_reports(network, directory, running) -> None:
    async with running(network, directory) as pool:
        link = await pool.acquire(5)
        link.report_full()
        assert pool.pick() is None
        network.open_at("a:1").handlers.on_load(LoadReport(num_sequences_running=3))
        assert pool.pick() is link


async def test_a_request_that_has_begun_passes_the_line_and_waits_on(network, directory, running) -> None:
    async with running(network, directory) as pool:
        await pool.acquire(5)
        held = [HeldSequence(await pool.acquire(5)) for _ in range(8)]
        served: list[str] = []

        async def request(name: str, **options) -> None:
            link = await pool.acquire(**options)
            served.append(name)
            held.append(HeldSequence(link))

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


async def test_sequences_go_where_their_prefix_was_computed(network, directory, running, until) -> None:
    directory.set_replicas("target", BOTH)
    prompt = tuple(range(4 * BLOCK_SIZE))
    async with running(network, directory, router=PrefixAwareRouter(RoutingConfig())) as pool:
        await until(pool, lambda: pool.num_connected == 2)
        link = await pool.acquire(5, token_ids=prompt)
        sequences = [HeldSequence(link) for _ in range(3)]
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
