"""Several orchestrators and several replicas: routing, admission, places, and who ends."""

import asyncio

import grpc.aio
import pytest

from pilotfish.errors import ResourceExhaustedError
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import Limits
from tests.support.until import until

LONG = 50_000


async def test_orchestrators_that_share_replicas_confuse_no_sequences_and_refuse_nobody(stack) -> None:
    """Who finds no place waits for one."""
    for pool in ("target", "target", "draft"):
        await stack.add(pool, limits=Limits(max_draft_tokens=16, max_sequences=3))
    first, second = await stack.serve(), await stack.serve()
    prompts = [f"Request number {number}" for number in range(10)]
    alone = [(await first.generate(text=prompt)).token_ids for prompt in prompts]
    answers = await asyncio.gather(*(each.generate(text=prompt) for prompt in prompts for each in (first, second)))
    assert [answer.token_ids for answer in answers] == [token_ids for token_ids in alone for _ in range(2)]
    await stack.nothing_is_left()


async def test_an_orchestrator_that_ends_takes_only_its_own_sequences_along(stack) -> None:
    await stack.add("target", step_time_s=0.001)
    first, second = await stack.serve(), await stack.serve()
    expected = await second.generate(max_tokens=300)
    for number in range(3):
        await anext(aiter(first.call(text=f"{number}", max_tokens=LONG)))
    staying = asyncio.create_task(second.generate(max_tokens=300))
    await until(lambda: stack.engines[0].num_sequences == 4)
    await first.server.drain_and_stop(0)
    assert (await staying).token_ids == expected.token_ids
    await stack.nothing_is_left()


async def test_a_conversation_returns_to_the_replica_that_has_it_cached(stack) -> None:
    await stack.add("target")
    await stack.add("target")
    orchestrator = await stack.serve()
    conversation = [3 + number % 40 for number in range(64)]
    counters = orchestrator.service.targets.router.counters
    for turn in range(1, 4):
        answer = await orchestrator.generate(tokens=pb.TokenPrompt(token_ids=conversation), max_tokens=32)
        conversation += [*answer.token_ids, 7, 8, 9]
        assert counters.num_by_prefix == turn - 1


async def test_a_full_queue_answers_with_a_hint_and_a_client_id_makes_a_client(stack) -> None:
    await stack.add("target", step_time_s=0.001)
    orchestrator = await stack.serve(max_concurrent_requests=1, max_queued_requests_per_client=1)
    request_queue = orchestrator.service.request_queue
    running = orchestrator.call(max_tokens=LONG, client_id="a")
    await anext(aiter(running))
    waiting = asyncio.create_task(orchestrator.generate(client_id="a"))
    await until(lambda: request_queue.num_waiting == 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator.generate(client_id="a")
    error = error_from_rpc(caught.value)
    assert isinstance(error, ResourceExhaustedError)
    assert "1 requests of this client wait" in str(error)
    assert error.retry_after_s is not None
    other = asyncio.create_task(orchestrator.generate(client_id="b"))
    await until(lambda: request_queue.num_waiting == 2)
    running.cancel()
    assert len((await waiting).token_ids) == len((await other).token_ids) == 40
    await until(lambda: request_queue.num_running == 0)
