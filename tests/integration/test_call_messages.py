"""gRPC calls whose clients do not send their message, or a large one, or another call's worth of them."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from orchestrator.requests.body_budget import UNCOUNTED_BYTES
from orchestrator.server import SERVICE_NAME
from pilotfish.config import config_from_dict
from pilotfish.errors import PilotfishError
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of
from pilotfish.security.api_key_file import write_keys
from tests.support.raw_http2 import RawCall, message_head
from tests.support.stack import Stack, running_stack

GENERATE = f"/{SERVICE_NAME}/Generate"
HEALTH = "/grpc.health.v1.Health/Check"
MAX_BYTES = 4 * 1024 * 1024
"""Of a message."""
MAX_UNDER_WAY = 5
"""With as little memory as can be: four for which nobody waits, and one beside them."""


@asynccontextmanager
async def serving(tmp_path: Path, **sections: Any) -> AsyncIterator[Stack]:
    sections = {"emulation": {"profile": "instant"}, "cache_dir": str(tmp_path), **sections}
    async with running_stack(config_from_dict(sections), with_draft=False) as stack:
        yield stack


async def status_of(call: RawCall) -> str:
    await call.ended.wait()
    _, found, rest = call.trailers.partition(b"grpc-status")
    assert found
    return rest[1 : 1 + rest[0]].decode()


def status(code: grpc.StatusCode) -> str:
    number: tuple[int, str] = code.value
    return str(number[0])


async def test_a_call_without_a_key_ends_before_its_message_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_keys(path, [ApiKey(name="ann", sha256=digest_of("pf-ann"), limits=KeyLimits())])
    async with serving(tmp_path, security={"public": {"api_keys_file": str(path)}}) as stack:
        address = stack.orchestrator.address
        for headers in ({}, {"authorization": "Bearer pf-bob"}):
            async with await RawCall.begin(address, GENERATE, headers) as call:
                call.send(message_head(1_000_000) + b"x" * 1000)
                assert await status_of(call) == status(grpc.StatusCode.UNAUTHENTICATED)
                assert not call.granted_bytes, "nothing beyond what every call may send"
        async with await RawCall.begin(address, GENERATE, {"authorization": "Bearer pf-ann"}) as call:
            call.send(message_head(1_000_000) + b"x" * 1000)
            while not call.granted_bytes:  # noqa: ASYNC110  # frames come when they do; the test's own timeout bounds it
                await asyncio.sleep(0.001)


async def test_of_a_message_that_is_not_being_read_the_server_takes_64_kib(tmp_path: Path) -> None:
    async with serving(tmp_path) as stack, await RawCall.begin(stack.orchestrator.address, "/no/Method", {}) as call:
        await call.ended.wait()
        assert call.initial_window_bytes <= UNCOUNTED_BYTES


async def test_messages_under_way_are_bounded_and_small_ones_are_served_nonetheless(tmp_path: Path) -> None:
    http = {"max_held_body_bytes": 1}  # as much as one message and the next need
    async with serving(tmp_path, orchestrator={"http": http}) as stack, AsyncExitStack() as calls:
        address, slow = stack.orchestrator.address, []
        for path in (GENERATE, HEALTH) * 20:
            slow.append(await calls.enter_async_context(await RawCall.begin(address, path, {})))
            slow[-1].send(message_head(MAX_BYTES) + b"x" * 1000)
        assert (await stack.ask()).token_ids
        ended = {asyncio.create_task(status_of(call)) for call in slow}
        while len(ended) > 2 * MAX_UNDER_WAY:  # of each kind so many
            done, ended = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            assert {each.result() for each in done} == {status(grpc.StatusCode.RESOURCE_EXHAUSTED)}
        assert (await stack.ask()).token_ids, "beside those that may go on"
        for task in ended:
            task.cancel()


async def test_calls_that_need_no_key_take_no_memory_from_those_that_do(tmp_path: Path) -> None:
    http = {"max_held_body_bytes": 1}
    async with serving(tmp_path, orchestrator={"http": http}) as stack, AsyncExitStack() as calls:

        async def begin(path: str) -> RawCall:
            call = await calls.enter_async_context(await RawCall.begin(stack.orchestrator.address, path, {}))
            call.send(message_head(MAX_BYTES) + b"x" * 1000)
            return call

        for _ in range(20):
            await begin(HEALTH)
        await asyncio.sleep(0.5)
        slow = await begin(GENERATE)
        for _ in range(20):
            await begin(HEALTH)
        await asyncio.sleep(0.5)
        assert not slow.ended.is_set()


async def test_messages_have_the_size_of_http_bodies(tmp_path: Path) -> None:
    async with serving(tmp_path) as stack, grpc.aio.insecure_channel(stack.orchestrator.address) as channel:
        for num_bytes, code in (
            (4_000_001, grpc.StatusCode.INVALID_ARGUMENT),
            (MAX_BYTES + 1, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            call = channel.unary_unary(GENERATE)(pb.GenerateRequest(text="x" * num_bytes).SerializeToString())
            assert await call.code() is code


async def test_health_and_reflection_answer_through_the_guard(tmp_path: Path) -> None:
    async with serving(tmp_path) as stack, grpc.aio.insecure_channel(stack.orchestrator.address) as channel:
        assert await channel.unary_unary(HEALTH)(b"") == b"\x08\x01"
        reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        call = reflect(iter([b"\x3a\x00", b"\x3a\x00"]))
        answers = [answer async for answer in call]
        assert len(answers) == 2
        assert all(SERVICE_NAME.encode() in answer for answer in answers)
        call = reflect(iter([b"\xff"]))
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_who_was_accepted_does_not_wait_for_strangers(tmp_path: Path) -> None:
    public = {"max_stranger_share": 1e-6}
    async with (
        serving(tmp_path, security={"public": public}) as stack,
        grpc.aio.insecure_channel(stack.orchestrator.address) as known,
        grpc.aio.insecure_channel(stack.orchestrator.address, options=[("grpc.use_local_subchannel_pool", 1)]) as other,
    ):
        asking = pb.GenerateRequest(text="a small fish", max_tokens=4).SerializeToString()

        async def ask() -> list[bytes]:
            return [piece async for piece in known.unary_stream(GENERATE)(asking)]

        assert await ask()
        await use_up_the_share(other, b"\xff")
        waiting = [asyncio.ensure_future(other.unary_unary(GENERATE)(b"\xff").code()) for _ in range(30)]
        for _ in range(20):
            assert await ask()
        assert not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()


async def use_up_the_share(channel: grpc.aio.Channel, wrong: bytes) -> None:
    """Of strangers: send what is refused until one has to wait."""
    for _ in range(600):  # 0.5 ms each, of 0.25 s
        code = await channel.unary_unary(GENERATE)(wrong, timeout=2).code()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return
        assert code is grpc.StatusCode.INVALID_ARGUMENT
    raise AssertionError("no stranger waits")


async def test_refusals_of_what_can_be_decoded_use_up_the_share_of_strangers(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, security={"public": {"max_stranger_share": 1e-6}}) as stack,
        grpc.aio.insecure_channel(stack.orchestrator.address) as channel,
    ):
        wrong = pb.GenerateRequest(text="a small fish", temperature=-1).SerializeToString()
        await use_up_the_share(channel, wrong)
        waiting = channel.unary_unary(HEALTH)(b"", timeout=0.2)
        assert await waiting.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_message_of_very_many_items_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as stack, grpc.aio.insecure_channel(stack.orchestrator.address) as channel:
        call = channel.unary_unary(GENERATE)(b"\x72\x00" * 1_900_000)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "100000 items" in await call.details()


async def test_a_stream_of_reflection_has_an_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as stack, grpc.aio.insecure_channel(stack.orchestrator.address) as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(
            b"\x3a\x00" for _ in range(1001)
        )
        answers = [answer async for answer in _until_refused(call)]
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(answers) == 1000


async def _until_refused(call: Any) -> AsyncIterator[bytes]:
    with suppress(grpc.aio.AioRpcError):
        async for answer in call:
            yield answer


def kept_errors() -> set[int]:
    """Of those that were raised."""
    errors = [each for each in gc.get_objects() if issubclass(type(each), PilotfishError)]
    return {id(each) for each in errors if each.__traceback__ is not None}


async def test_refused_calls_leave_nothing_for_the_collector(tmp_path: Path) -> None:
    """Thousands of them at once would hold the loop."""
    path = tmp_path / "keys"
    write_keys(path, [ApiKey(name="ann", sha256=digest_of("pf-ann"), limits=KeyLimits())])
    public = {"api_keys_file": str(path), "request_read_timeout_s": 0.01}
    async with serving(tmp_path, security={"public": public}) as stack:
        gc.collect()
        before = kept_errors()  # other tests' own
        gc.disable()
        try:
            for key, code in (
                ("bob", grpc.StatusCode.UNAUTHENTICATED),
                ("ann", grpc.StatusCode.DEADLINE_EXCEEDED),
            ):
                headers = {"authorization": f"Bearer pf-{key}"}
                async with await RawCall.begin(stack.orchestrator.address, GENERATE, headers) as call:
                    assert await status_of(call) == status(code)
            while not kept_errors() <= before:  # noqa: ASYNC110  # the calls end when they do
                await asyncio.sleep(0.001)
        finally:
            gc.enable()
