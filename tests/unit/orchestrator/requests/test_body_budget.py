"""Bodies that are in memory at once."""

import asyncio
import contextlib
from typing import Any

from orchestrator.http.exchange import Endpoint, Exchange
from orchestrator.http.identity_middleware import IdentityMiddleware
from orchestrator.requests.body_budget import UNCOUNTED_BYTES, BodyBudget
from pilotfish.errors import ResourceExhaustedError

MB = 1_000_000


def held(budget: BodyBudget, client: str, num_bytes: int, holders: contextlib.ExitStack) -> bool:
    """Whether it may be held, until the holders end; read in pieces, as it comes."""
    hold = holders.enter_context(budget.holding(client))
    try:
        for part in range(1, 5):
            hold(UNCOUNTED_BYTES + num_bytes * part // 4)
    except ResourceExhaustedError:
        return False
    return True


def test_one_client_holds_half_and_leaves_room_for_others() -> None:
    budget = BodyBudget(64 * MB)
    with contextlib.ExitStack() as holders:
        assert [held(budget, "greedy", 4 * MB, holders) for _ in range(8)] == [True] * 8
        assert not held(budget, "greedy", 1, holders)
        assert [held(budget, "modest", 4 * MB, holders) for _ in range(4)] == [True] * 4
        assert held(budget, "greedy", 0, holders), "small ones are not counted"
    with contextlib.ExitStack() as holders:
        assert held(budget, "modest", 32 * MB, holders), "all was given back"


def test_what_is_refused_gives_back_what_it_held() -> None:
    budget = BodyBudget(2 * MB)
    for _ in range(9):
        with contextlib.ExitStack() as holders:
            assert not held(budget, "a", 2 * MB, holders)
    with contextlib.ExitStack() as holders:
        assert held(budget, "a", MB, holders)


async def test_a_request_beyond_the_budget_is_told_to_come_back() -> None:
    ends = asyncio.Event()
    budget = BodyBudget(2 * MB)

    async def handler(exchange: Exchange) -> None:
        if len(exchange.body) > UNCOUNTED_BYTES:
            await ends.wait()
        await exchange.reply({})

    async def ask(num_bytes: int, **claimed: str) -> dict[str, Any]:
        """The answer's head."""
        sent: list[Any] = []
        body = [{"type": "http.request", "body": b"x" * num_bytes, "more_body": False}]

        async def receive() -> Any:
            return body.pop() if body else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in claimed.items()]
        scope = {"type": "http", "method": "POST", "path": "/x", "headers": headers, "client": ("10.0.0.7", 1)}
        await IdentityMiddleware(Endpoint(handler, 4 * MB, budget))(scope, receive, send)
        return sent[0]

    first = asyncio.create_task(ask(MB))
    await asyncio.sleep(0)
    refused = await ask(MB, x_client_id="someone else")
    assert refused["status"] == 429
    assert b"retry-after" in dict(refused["headers"])
    assert (await ask(UNCOUNTED_BYTES))["status"] == 200
    ends.set()
    assert (await first)["status"] == 200
    assert (await ask(MB))["status"] == 200
