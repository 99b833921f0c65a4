"""Who may be served now: bounded places, and a bounded, fair queue in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import assert_never

from orchestrator.requests.caller import Caller
from orchestrator.requests.prompt import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import DeadlineExceededError, ResourceExhaustedError
from pilotfish.fair_queue import FairQueue

_OUTPUT_COST = 2
"""An output token costs as much as this many prompt tokens, as in the paper on the virtual token counter."""
_COMPILE_COST = 2000
"""A second of compiling a grammar, which a replica does once more, costs as much as this many prompt tokens: about what
a CPU replica could have read meanwhile."""
_CHARACTERS_PER_TOKEN = 4
"""Assumed of prompts that are not tokenised yet."""
_MAX_ESTIMATED_TOKENS = 1 << 20
"""The most tokens an answer counts, whatever the request allows: no context is longer, and sums stay exact floats."""
_MIN_RETRY_S = 0.5
_MAX_RETRY_S = 60.0
_UNMEASURED_DEPARTURE_S = 0.05
_DEPARTURE_WEIGHT = 0.05
"""Weight of the latest value in the moving average of the time between departures."""


@dataclass
class QueueCounters:
    """What became of the requests so far."""

    num_admitted: int = 0
    num_queued: int = 0
    """Arrived requests that had to wait."""
    num_refused: int = 0
    """Refused: the queue, or the client's share of it, was full."""
    num_timed_out: int = 0
    """Refused after waiting for max_queue_time_s."""
    num_expired: int = 0
    """Refused as their own deadline passed while they waited."""
    num_abandoned: int = 0
    """Cancelled while they waited."""
    queue_time_s: float = 0.0
    """Waited by those that were admitted, summed up."""


_Waiter = asyncio.Future[None]
"""Done when its request may go on."""


@dataclass(eq=False)
class Place:
    """What an admitted request holds."""

    client_id: str
    estimated_cost: float
    cost: float = field(init=False)
    """Cost in tokens: set it to what the request did cost, before the place is given back."""

    def __post_init__(self) -> None:
        self.cost = self.estimated_cost


class RequestQueue:
    """The bounded queue in front of the replicas' places. Used from one event loop."""

    def __init__(self, config: OrchestratorConfig, num_places: Callable[[], int | None]) -> None:
        """num_places: how many requests the replicas have room for now, None without a replica; call `grant` when it
        grows."""
        self._config = config
        self._num_places = num_places
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._departure_s = _UNMEASURED_DEPARTURE_S
        """Average time between two requests that end while others wait."""
        self._last_departure_s: float | None = None
        self.num_running = 0
        self.counters = QueueCounters()

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    @contextlib.asynccontextmanager
    async def place(self, caller: Caller, cost: float) -> AsyncIterator[Place]:
        """Hold a place; wait in the queue for it. cost: see `estimated_cost`.

        Raises ResourceExhaustedError, with a hint when to try again.
        """
        client_id = caller.client_id
        # There may be more places than at the last grant: not every report that makes room is announced.
        self.grant()
        if self.num_running >= self._limit:
            await self._wait(caller, cost)
        else:
            # Through the queue nonetheless: that is where service is counted.
            self._queue.push(client_id, asyncio.get_running_loop().create_future(), cost)
            self.grant()
        place = Place(client_id, cost)
        try:
            yield place
        finally:
            self._leave(place)

    def grant(self) -> None:
        """Let as many in as there are places. Cheap when nobody waits."""
        while self._queue and self.num_running < self._limit:
            client_id, waiter, cost = self._queue.pop()
            if waiter.cancelled():
                # Its task has yet to find out.
                self._queue.correct(client_id, -cost)
                continue
            self.num_running += 1
            self.counters.num_admitted += 1
            waiter.set_result(None)

    @property
    def _limit(self) -> int:
        limit, num_places = self._config.max_concurrent_requests, self._num_places()
        # Without a replica a request shall wait for one, and fail for want of one, not of a place.
        return limit if num_places is None else min(limit, num_places)

    def _leave(self, place: Place) -> None:
        self._queue.correct(place.client_id, place.cost - place.estimated_cost)
        self.num_running -= 1
        self._note_departure()
        self.grant()

    async def _wait(self, caller: Caller, cost: float) -> None:
        """Wait until `grant` comes to this request."""
        client_id = caller.client_id
        self._check_room(client_id)
        self.counters.num_queued += 1
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        arrived_s = loop.time()
        limit_s = self._config.max_queue_time_s
        self._queue.push(client_id, waiter, cost)
        try:
            async with asyncio.timeout(limit_s):
                await waiter
        except BaseException as error:
            self._withdraw(client_id, waiter, cost)
            if isinstance(error, TimeoutError):
                self.counters.num_timed_out += 1
                raise self._exhausted(f"the request has waited for its turn for {limit_s:g} s") from None
            if isinstance(caller.reason_of(error), DeadlineExceededError):
                self.counters.num_expired += 1
            else:
                self.counters.num_abandoned += 1
            raise
        self.counters.queue_time_s += loop.time() - arrived_s

    def _check_room(self, client_id: str) -> None:
        limit, client_limit = self._config.max_queued_requests, self._config.max_queued_requests_per_client
        if len(self._queue) >= limit:
            running = f"{self.num_running} requests are being served"
            problem = f"{running} and {limit} wait, which is the limit" if limit else f"{running}, which is the limit"
        elif self._queue.num_items(client_id) >= client_limit:
            problem = f"{client_limit} requests of this client wait, which is its limit"
        else:
            return
        self.counters.num_refused += 1
        raise self._exhausted(problem)

    def _withdraw(self, client_id: str, waiter: _Waiter, cost: float) -> None:
        """Take a request out that waits no more, or give back the place that came too late."""
        if waiter.done() and not waiter.cancelled():
            self.counters.num_admitted -= 1
            self.num_running -= 1
            self._queue.correct(client_id, -cost)
            self.grant()
        else:
            self._queue.remove(client_id, waiter)

    def _exhausted(self, problem: str) -> ResourceExhaustedError:
        error = ResourceExhaustedError(f"{problem}; try again later")
        estimate_s = self._departure_s * (len(self._queue) + 1)
        # Spread out: those who are refused together shall not come back together.
        error.retry_after_s = min(max(estimate_s, _MIN_RETRY_S), _MAX_RETRY_S) * random.uniform(0.75, 1.25)
        return error

    def _note_departure(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._queue and self._last_departure_s is not None:
            self._departure_s += _DEPARTURE_WEIGHT * (now_s - self._last_departure_s - self._departure_s)
        self._last_departure_s = now_s if self._queue else None


def estimated_cost(prompt: Prompt, max_tokens: int) -> float:
    """What a request will cost at most, before anything is spent on it: see `actual_cost`."""
    match prompt:
        case TokenPrompt(token_ids=token_ids):
            num_prompt_tokens = len(token_ids)
        case TextPrompt(text=text):
            num_prompt_tokens = len(text) // _CHARACTERS_PER_TOKEN
        case ChatPrompt(messages=messages):
            num_prompt_tokens = sum(len(message.content) for message in messages) // _CHARACTERS_PER_TOKEN
        case _:
            assert_never(prompt)
    return actual_cost(num_prompt_tokens, min(max_tokens, _MAX_ESTIMATED_TOKENS))


def grammar_cost(compile_s: float) -> float:
    """The service that a grammar gets, in prompt tokens. compile_s: what it takes to compile; 0: it is kept."""
    return _COMPILE_COST * compile_s


def actual_cost(num_prompt_tokens: int, num_output_tokens: int) -> float:
    """The service a request got, in prompt tokens."""
    return num_prompt_tokens + _OUTPUT_COST * num_output_tokens
