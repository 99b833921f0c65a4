import asyncio
import contextlib
import random
import time

import pytest

from orchestrator.requests.caller import Caller
from orchestrator.requests.prompt import ChatPrompt, TextPrompt, TokenPrompt
from orchestrator.requests.request_queue import Place, RequestQueue, actual_cost, estimated_cost
from pilotfish.chat import ChatMessage
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import DeadlineExceededError, ResourceExhaustedError


def caller_of(client: str, timeout_s: float | None = None) -> Caller:
    return Caller(client_id=client, arrival_ns=time.monotonic_ns(), timeout_s=timeout_s)


class Door:
    """Requests that hold their place until they are told to leave."""

    def __init__(self, num_places: int | None = 1, **config) -> None:
        self.num_places = num_places
        config.setdefault("max_concurrent_requests", 100)
        self.request_queue = RequestQueue(OrchestratorConfig(**config), lambda: self.num_places)
        self.served: list[str] = []
        self._leaving: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def arrive(self, name: str, client: str = "client", cost: float = 10, timeout_s=None) -> None:
        """The request has come as far as it gets now."""
        self._leaving[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._request(name, client, cost, timeout_s))
        await self.settle()

    async def _request(self, name, client, cost, timeout_s) -> None:
        caller = caller_of(client, timeout_s)
        async with caller.deadline(), self.request_queue.place(caller, cost) as place:
            self.served.append(name)
            await self._leaving[name].wait()
            place.cost = cost

    async def leave(self, name: str) -> None:
        self._leaving[name].set()
        await self._tasks[name]
        await self.settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks[name]
        await self.settle()

    async def outcome(self, name: str) -> None:
        await self._tasks[name]

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_without_a_replica_requests_get_through_to_wait_for_one() -> None:
    door = Door(num_places=None, max_concurrent_requests=3)
    for name in "abcd":
        await door.arrive(name)
    assert door.served == ["a", "b", "c"]
    for name in "abcd":
        await door.leave(name)


async def test_while_others_hold_all_places_requests_wait_for_one() -> None:
    door = Door(num_places=0)
    await door.arrive("a")
    assert door.served == []
    door.num_places = 1
    door.request_queue.grant()
    await door.settle()
    assert door.served == ["a"]
    await door.leave("a")


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    door = Door(max_queued_requests=2)
    for name in "abc":
        await door.arrive(name)
    with pytest.raises(ResourceExhaustedError, match="1 requests are being served and 2 wait") as refusal:
        async with door.request_queue.place(caller_of("client"), 1):
            raise AssertionError("let in")
    assert refusal.value.retry_after_s >= 0.3
    assert door.request_queue.counters.num_refused == 1
    for name in "abc":
        await door.leave(name)


async def test_a_client_can_fill_its_own_share_of_the_queue_only() -> None:
    door = Door(max_queued_requests_per_client=2)
    for name in "abc":
        await door.arrive(name, client="greedy")
    with pytest.raises(ResourceExhaustedError, match="2 requests of this client wait"):
        async with door.request_queue.place(caller_of("greedy"), 1):
            raise AssertionError("let in")
    await door.arrive("d", client="modest")
    assert door.request_queue.num_waiting == 3
    for name in ("a", "d", "b", "c"):
        await door.leave(name)
    assert door.served == ["a", "d", "b", "c"]


async def test_a_deadline_that_passes_in_the_queue_ends_the_request_there() -> None:
    door = Door()
    await door.arrive("a")
    await door.arrive("late", timeout_s=0.01)
    with pytest.raises(DeadlineExceededError, match="the deadline passed"):
        await door.outcome("late")
    assert door.served == ["a"]
    assert (door.request_queue.num_waiting, door.request_queue.counters.num_expired) == (0, 1)
    await door.leave("a")
    assert door.request_queue.num_running == 0


async def test_a_long_wait_ends_with_a_hint() -> None:
    door = Door(max_queue_time_s=0.01)
    await door.arrive("a")
    await door.arrive("b", timeout_s=60)
    with pytest.raises(ResourceExhaustedError, match=r"waited for its turn for 0\.01 s") as refusal:
        await door.outcome("b")
    assert refusal.value.retry_after_s > 0
    assert door.request_queue.counters.num_timed_out == 1
    await door.leave("a")


async def test_what_a_request_did_not_use_counts_for_its_clients_next_turn() -> None:
    door = Door(num_places=2)
    place_a = door.request_queue.place(caller_of("a"), 1000)
    place_b = door.request_queue.place(caller_of("b"), 1000)
    used: Place = await place_a.__aenter__()
    await place_b.__aenter__()
    await door.arrive("b1", client="b")
    await door.arrive("a1", client="a")
    used.cost = 10
    await place_a.__aexit__(None, None, None)
    await door.settle()
    assert door.served == ["a1"]
    await place_b.__aexit__(None, None, None)
    await door.leave("a1")
    await door.leave("b1")


@pytest.mark.parametrize("seed", range(5))
async def test_no_place_is_lost_or_given_twice_whatever_happens_when(seed) -> None:
    rng = random.Random(seed)
    num_places = 4
    request_queue = RequestQueue(OrchestratorConfig(max_queued_requests=20), lambda: num_places)
    most_running = 0

    async def request(client: str) -> None:
        nonlocal most_running
        caller = caller_of(client, rng.choice([None, 0, 0.0005, 10]))
        with contextlib.suppress(ResourceExhaustedError, DeadlineExceededError):
            async with caller.deadline(), request_queue.place(caller, rng.randrange(100)) as place:
                most_running = max(most_running, request_queue.num_running)
                for _ in range(rng.randrange(10)):
                    await asyncio.sleep(0)
                place.cost = rng.randrange(100)

    tasks = []
    for _ in range(400):
        tasks.append(asyncio.create_task(request(rng.choice("abc"))))
        if rng.random() < 0.3:
            rng.choice(tasks).cancel()
        if rng.random() < 0.1:
            num_places = rng.randrange(5)
            request_queue.grant()
        await asyncio.sleep(0)
    num_places = 4
    request_queue.grant()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most_running == 4
    assert (request_queue.num_running, request_queue.num_waiting) == (0, 0)
    assert not [task for task in tasks if not task.cancelled() and task.exception() is not None]


def test_costs_count_output_twice_and_guess_the_length_of_text() -> None:
    assert actual_cost(100, 50) == 200
    assert estimated_cost(TokenPrompt([1] * 100), 50) == 200
    assert estimated_cost(TextPrompt("x" * 400), 50) == 200
    chat = ChatPrompt((ChatMessage("user", "x" * 200), ChatMessage("assistant", "x" * 200)))
    assert estimated_cost(chat, 50) == 200


def test_a_limit_beyond_every_context_costs_a_whole_context() -> None:
    """JSON's numbers know no end, and the queue counts in floats."""
    assert estimated_cost(TokenPrompt([1]), 10**400) == estimated_cost(TokenPrompt([1]), 2**64) == 2**21 + 1


async def test_cancelling_in_the_queue_frees_the_place_in_it() -> None:
    door = Door(max_queued_requests=1)
    for name in "ab":
        await door.arrive(name)
    await door.cancel("b")
    assert (door.request_queue.num_waiting, door.request_queue.counters.num_abandoned) == (0, 1)
    await door.arrive("c")
    await door.leave("a")
    assert door.served == ["a", "c"]
    await door.leave("c")
