"""Requests to an emulated stack, and when their tokens came."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio
from shared.asking import Answer, Arrival, ask

from pilotfish.rpc.channel import CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

MODES = {"auto": pb.SPECULATION_MODE_AUTO, "off": pb.SPECULATION_MODE_OFF, "on": pb.SPECULATION_MODE_ON}
_MIN_ANSWER_TOKENS = 32
"""Measured of an answer, for its time per output token to count."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of decoding."""

    elapsed_s: float = 0.0
    num_tokens: int = 0
    rounds_s: tuple[float, ...] = ()
    """Between arrivals."""

    def __add__(self, other: Span) -> Span:
        return Span(
            self.elapsed_s + other.elapsed_s, self.num_tokens + other.num_tokens, self.rounds_s + other.rounds_s
        )

    @property
    def num_rounds(self) -> int:
        return len(self.rounds_s)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.elapsed_s


def span_of(answer: Answer, num_left_out: int) -> Span:
    """Between the first arrival and the last one that has num_left_out tokens after it."""
    first, *others = answer.arrivals
    end = len(answer.token_ids) - num_left_out
    num_tokens = 0
    last_s, rounds_s = first.time_s, []
    for arrival in others:
        if first.num_tokens + num_tokens + arrival.num_tokens > end:
            break
        num_tokens += arrival.num_tokens
        rounds_s.append(arrival.time_s - last_s)
        last_s = arrival.time_s
    return Span(last_s - first.time_s, num_tokens, tuple(rounds_s))


class Client:
    """Asks one orchestrator. Every request has another prompt and another seed, unless it says which it is."""

    def __init__(self, stub: pb_grpc.InferenceStub) -> None:
        self._stub = stub
        self._num_asked = 0

    async def ask(
        self,
        mode: str,
        num_tokens: int,
        *,
        num_speculative_tokens: int | None = None,
        on_arrival: Callable[[Arrival], None] | None = None,
        number: int | None = None,
    ) -> Answer:
        """One answer of num_tokens tokens.

        number: two requests of one number ask the same and are drafted for with the same luck.
        """
        self._num_asked += 1
        number = self._num_asked if number is None else number
        request = pb.GenerateRequest(
            text=f"Request {number}.",
            max_tokens=num_tokens,
            seed=number,
            ignore_eos=True,
            speculation=pb.SpeculationOptions(mode=MODES[mode], num_speculative_tokens=num_speculative_tokens),
        )
        return await ask(self._stub, request, on_arrival)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """A client of the orchestrator at an address."""
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        yield Client(pb_grpc.InferenceStub(channel))


@dataclass(slots=True)
class Load:
    """What came in a closed loop, from the end of its warm-up on."""

    duration_s: float
    num_tokens: int = 0
    num_plain: int = 0
    token_times_s: list[float] = field(default_factory=list)
    """Of each answer, or the part of it that was measured: mean time per output token."""

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.duration_s

    @property
    def plain_share(self) -> float:
        return self.num_plain / max(1, self.num_tokens)

    def __add__(self, other: Load) -> Load:
        return Load(
            self.duration_s + other.duration_s,
            self.num_tokens + other.num_tokens,
            self.num_plain + other.num_plain,
            self.token_times_s + other.token_times_s,
        )


@dataclass(slots=True)
class _Measured:
    """The part of an answer that falls into the time of measuring."""

    last_s: float | None = None
    """Of the latest arrival, measured or not."""
    elapsed_s: float = 0.0
    num_tokens: int = 0

    def add(self, arrival: Arrival, load: Load) -> None:
        load.num_tokens += arrival.num_tokens
        load.num_plain += arrival.num_plain
        if self.last_s is None:
            return
        self.elapsed_s += arrival.time_s - self.last_s
        self.num_tokens += arrival.num_tokens

    def end(self, load: Load) -> None:
        """Fewer tokens say more about where they were cut than about what one takes."""
        if self.num_tokens >= _MIN_ANSWER_TOKENS:
            load.token_times_s.append(self.elapsed_s / self.num_tokens)


async def closed_loop(
    client: Client,
    mode: str,
    concurrency: int,
    *,
    warm_up_s: float,
    duration_s: float,
    answer_tokens: Sequence[int],
    first_number: int = 1,
) -> Load:
    """`concurrency` askers, each asking again as soon as it is answered; answers cut in the middle count as well.

    answer_tokens: lengths, taken in turn, so that askers do not move in step. Every loop of the same concurrency and
    first_number asks the same, asker by asker: the luck of acceptances is the same where the draft lengths are.
    """
    begin_s = time.perf_counter() + warm_up_s
    end_s = begin_s + duration_s
    load = Load(duration_s)

    async def asker(index: int) -> None:
        for turn in itertools.count(index):
            measured = _Measured()

            def note(arrival: Arrival, measured: _Measured = measured) -> None:
                if begin_s <= arrival.time_s < end_s:
                    measured.add(arrival, load)
                measured.last_s = arrival.time_s

            number = first_number + index + concurrency * (turn - index)
            try:
                await client.ask(mode, answer_tokens[turn % len(answer_tokens)], on_arrival=note, number=number)
            finally:
                measured.end(load)

    tasks = [asyncio.create_task(asker(index)) for index in range(concurrency)]
    done, _ = await asyncio.wait(tasks, timeout=end_s - time.perf_counter(), return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    return load
