"""A client that runs many requests at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio

from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc


@dataclass(slots=True)
class Answer:
    """One finished request."""

    token_ids: list[int]
    logprobs: list[Any]
    summary: Any
    wall_s: float


async def ask_all(address: str, requests: Sequence[pb.GenerateRequest], concurrency: int) -> list[Answer]:
    """Run the requests, at most concurrency at a time; answers in the requests' order."""
    gate = asyncio.Semaphore(concurrency)
    async with grpc.aio.insecure_channel(address, options=PUBLIC_CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.InferenceStub(channel)

        async def ask(request: pb.GenerateRequest) -> Answer:
            async with gate:
                start = time.perf_counter()
                answer = Answer([], [], None, 0.0)
                async for response in stub.Generate(request, timeout=600):
                    if response.HasField("summary"):
                        answer.summary = response.summary
                    else:
                        answer.token_ids.extend(response.chunk.token_ids)
                        answer.logprobs.extend(response.chunk.logprobs)
                answer.wall_s = time.perf_counter() - start
                return answer

        return list(await asyncio.gather(*(ask(request) for request in requests)))


def chat_request(text: str, **fields: Any) -> pb.GenerateRequest:
    """A one-turn chat."""
    return pb.GenerateRequest(chat=pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content=text)]), **fields)
