"""A steady stream of requests that a load balancer spreads over whichever orchestrators there are."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc
import grpc.aio
from chaos.plan import Plan, generate_request
from chaos.truth import Truth

from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from pilotfish.types import SamplingParams

MAX_TOKENS = 32
GIVE_UP_S = 30.0
"""A request that no orchestrator accepts for so long has failed."""
RETRY_S = 0.1
REFRESH_S = 0.5
"""Time between looks at which orchestrators there are."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    end_s: float
    """time.monotonic()"""
    longest_pause_s: float
    """The longest pause between two messages, the wait for the first one included."""
    num_retries: int
    """Refused before its first token, as by an orchestrator that stops, and asked again elsewhere."""
    problem: str
    """Empty: the whole answer came, and is right."""


class Traffic:
    """`with Traffic(...) as traffic`: `concurrency` requests are always on their way, on a thread of its own."""

    def __init__(self, truth: Truth, addresses: Callable[[], Sequence[str]], concurrency: int) -> None:
        self.concurrency = concurrency
        self._truth = truth
        self._find_addresses = addresses
        self._addresses: list[str] = []
        self._answers: list[Answer] = []
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._numbers = itertools.count()
        self._is_ending = threading.Event()
        self._threads = [threading.Thread(target=self._refresh), threading.Thread(target=self._run)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_ending.set()
        for thread in self._threads:
            thread.join()

    def since(self, start_s: float) -> list[Answer]:
        """Answers that ended since then, by time.monotonic()."""
        return [answer for answer in list(self._answers) if answer.end_s >= start_s]

    def _refresh(self) -> None:
        while not self._is_ending.wait(REFRESH_S if self._addresses else 0.05):
            self._addresses = list(self._find_addresses()) or self._addresses

    def _run(self) -> None:
        asyncio.run(self._keep_asking())

    async def _keep_asking(self) -> None:
        running: set[asyncio.Task[None]] = set()
        while not self._is_ending.is_set():
            while self._addresses and len(running) < self.concurrency:
                running.add(asyncio.create_task(self._ask(next(self._numbers))))
            if running:
                _, running = await asyncio.wait(running, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0.1)
        await asyncio.gather(*running)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def _ask(self, number: int) -> None:
        plan = Plan(
            f"request {number}: tell me of the sea",
            SamplingParams(temperature=0.9 if number % 2 else 0.0, seed=number, max_tokens=MAX_TOKENS),
            "patient",
            num_read=MAX_TOKENS,
            timeout_s=120.0,
        )
        start_s = last_s = time.monotonic()
        num_retries, longest_s, problem = 0, 0.0, ""
        token_ids: list[int] = []
        while True:
            try:
                async for message in self._stub(number + num_retries).Generate(
                    generate_request(plan), timeout=plan.timeout_s
                ):
                    now_s = time.monotonic()
                    last_s, longest_s = now_s, max(longest_s, now_s - last_s)
                    token_ids += message.chunk.token_ids
                break
            except grpc.aio.AioRpcError as error:
                is_late = time.monotonic() - start_s > GIVE_UP_S
                if token_ids or is_late or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    problem = f"{plan.prompt!r} after {len(token_ids)} tokens: {error.code().name}: {error.details()}"
                    break
                num_retries += 1
                await asyncio.sleep(RETRY_S)
        if not problem and token_ids != self._truth.token_ids(plan, MAX_TOKENS):
            problem = f"{plan.prompt!r}: wrong text of {len(token_ids)} tokens"
        self._answers.append(Answer(time.monotonic(), longest_s, num_retries, problem))

    def _stub(self, number: int) -> pb_grpc.InferenceStub:
        address = self._addresses[number % len(self._addresses)]
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=PUBLIC_CHANNEL_OPTIONS)
        return pb_grpc.InferenceStub(self._channels[address])
