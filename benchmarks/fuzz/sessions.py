"""Whole answers while replicas garble what they say: an orchestrator over real engines with a tiny model."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from hypothesis import strategies as st

from fuzz.frames import EDITS, garbled, items_of, spoil
from fuzz.replica import replica_of, tiny_config
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.frames import EOF, Service
from pilotfish.rpc.stream import CODECS
from pilotfish.rpc.v1 import draft_pb2, inference_pb2, inference_pb2_grpc, target_pb2
from pilotfish.types import FinishReason
from tests.support.message_strategies import messages
from tests.support.stack import Stack, running_stack
from tests.support.threaded_engine import ThreadedEngine
from tests.support.until import until

NUM_REPLICAS = 3
"""Replicas of each pool, as the orchestrator sees it."""
PATIENCE_S = 1.0
"""What was garbled may never come."""
DAMAGES = st.one_of(*[st.none()] * 6, EDITS, messages(target_pb2.Verdict), messages(draft_pb2.Proposal))
"""Damages of one frame: none, other bytes, or other fields of its items of that type."""
QUESTIONS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["abc", "abc" * 8]),
        "max_tokens": st.sampled_from([1, 8, 40]),
        "temperature": st.sampled_from([0.0, 1.0]),
        "ignore_eos": st.booleans(),
        "speculation": st.fixed_dictionaries(
            {
                "mode": st.sampled_from(inference_pb2.SpeculationMode.values()),
                "proposer": st.sampled_from(["draft", "draft", "ngram"]),
                "acceptance": st.sampled_from([1, 2]),
            }
        ),
    },
    optional={"logprobs": st.integers(0, 3), "stop": st.just(["a"]), "seed": st.integers(0, 9)},
)


class SessionsSurface:
    """An input is what is asked at once, and what becomes of the frames of each pool, one after another."""

    name = "sessions"
    inputs = st.tuples(
        st.lists(QUESTIONS, min_size=1, max_size=4),
        st.lists(DAMAGES, min_size=4, max_size=40),
        st.lists(DAMAGES, min_size=4, max_size=40),
    )

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._damages: dict[str, Iterator[Any]] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as exits:
            config = tiny_config(Path(exits.enter_context(tempfile.TemporaryDirectory())))
            engines = {name: ThreadedEngine(build_engine(config, name)) for name in CODECS}
            running = running_stack(config, target_engine=engines["target"], draft_engine=engines["draft"])
            self._stack: Stack = await exits.enter_async_context(running)
            front = grpc.aio.insecure_channel(self._stack.orchestrator.address)
            self._stub = inference_pb2_grpc.InferenceStub(await exits.enter_async_context(front))
            self._addresses = {}
            for service, replica in (("target", self._stack.target), ("draft", self._stack.draft)):
                channel = await exits.enter_async_context(grpc.aio.insecure_channel(replica.address))
                between = replica_of(service, partial(self._pass_on, service, channel))
                self._addresses[service] = await exits.enter_async_context(between)
            yield

    async def _pass_on(self, service: Service, channel: grpc.aio.Channel, _: Any, context: Any) -> None:
        """A call to the replica behind, whose frames are damaged on their way back."""
        codec = CODECS[service]
        call: Any = channel.stream_stream(f"/{codec.service_name}/Connect")()

        async def pass_forth() -> None:
            while (frame := await context.read()) is not EOF:
                await call.write(frame)
            await call.done_writing()

        async with asyncio.TaskGroup() as group:
            forth = group.create_task(pass_forth())
            await context.write(await call.read())  # the welcome: what is wrong with it, replies.py asks
            while (frame := await call.read()) is not EOF:
                await context.write(self._damaged(service, frame))
            forth.cancel()
            call.cancel()

    def _damaged(self, service: Service, data: bytes) -> bytes:
        damage = next(self._damages[service], None)
        if isinstance(damage, list):
            return garbled(data, damage)
        if isinstance(damage, Message):
            frame = CODECS[service].response_frame_type.FromString(data)
            for item in items_of(frame):
                if type(item) is type(damage):
                    spoil(item, damage)
            return bytes(frame.SerializeToString())
        return data

    async def run(self, data: tuple[Sequence[dict[str, Any]], Sequence[Any], Sequence[Any]]) -> set[str]:
        questions, *damages = data
        self._damages = dict(zip(CODECS, map(iter, damages), strict=True))
        for service, address in self._addresses.items():
            # New ones for each input: what is known of the old ones goes with them.
            names = [f"{service}{next(self._numbers)}" for _ in range(NUM_REPLICAS)]
            self._stack.directory.set_replicas(service, dict.fromkeys(names, address))
        ends = await asyncio.gather(*(self._answer(question) for question in questions))
        service = self._stack.orchestrator.service
        pools, queue = (service.targets, service.drafts), service.request_queue
        # Or it is a hang: all requests have ended, and places or sequences are still held.
        await until(lambda: not queue.num_running + queue.num_waiting + sum(pool.num_sequences for pool in pools))
        return set(ends)

    async def _answer(self, question: dict[str, Any]) -> str:
        call = self._stub.Generate(inference_pb2.GenerateRequest(**question), timeout=PATIENCE_S)
        said: list[Any] = []
        with contextlib.suppress(grpc.aio.AioRpcError):  # its status is asked for
            async for message in call:
                said.append(message)
        code, details = await call.code(), await call.details()
        if code is grpc.StatusCode.UNKNOWN:
            raise AssertionError(details)
        if code is not grpc.StatusCode.OK:
            return f"{code.name}: {details}"
        return FinishReason(said[-1].summary.finish_reason).name
