"""Requests to an orchestrator, and when their tokens came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from pilotfish.rpc.v1 import types_pb2

_TIMEOUT_S = 600.0


@dataclass(slots=True)
class Arrival:
    """Tokens that came together."""

    time_s: float
    num_tokens: int
    num_plain: int
    """Of them, those decoded without a draft."""


@dataclass(slots=True)
class Answer:
    """One answer, as far as it has come."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    summary: Any = None


async def ask(
    stub: pb_grpc.InferenceStub, request: pb.GenerateRequest, on_arrival: Callable[[Arrival], None] | None = None
) -> Answer:
    """One request, to its end."""
    answer = Answer()
    async for response in stub.Generate(request, timeout=_TIMEOUT_S):
        if response.HasField("summary"):
            answer.summary = response.summary
            continue
        chunk = response.chunk
        answer.text += chunk.text
        answer.logprobs.extend(chunk.logprobs)
        if not chunk.token_ids:
            continue
        answer.token_ids.extend(chunk.token_ids)
        num_plain = sum(origin == types_pb2.TOKEN_ORIGIN_PLAIN for origin in chunk.origins)
        answer.arrivals.append(Arrival(time.perf_counter(), len(chunk.token_ids), num_plain))
        if on_arrival is not None:
            on_arrival(answer.arrivals[-1])
    return answer


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[pb_grpc.InferenceStub]:
    """To the orchestrator at an address."""
    async with grpc.aio.insecure_channel(address, options=PUBLIC_CHANNEL_OPTIONS) as channel:
        yield pb_grpc.InferenceStub(channel)


async def ask_all(address: str, requests: Sequence[pb.GenerateRequest], concurrency: int) -> list[Answer]:
    """Run the requests, at most concurrency at a time; answers in the requests' order."""
    gate = asyncio.Semaphore(concurrency)
    async with connected(address) as stub:

        async def ask_one(request: pb.GenerateRequest) -> Answer:
            async with gate:
                return await ask(stub, request)

        return list(await asyncio.gather(*(ask_one(request) for request in requests)))


def chat_request(text: str, **fields: Any) -> pb.GenerateRequest:
    """A one-turn chat."""
    return pb.GenerateRequest(chat=pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content=text)]), **fields)
