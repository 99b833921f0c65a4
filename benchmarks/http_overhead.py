"""What do HTTP and gRPC streaming cost over the engine, and do 1,000 streams at once come through?

An emulated engine takes the time of other hardware. Streams of one token a step are taken from it directly, over gRPC
and over server-sent events, in turn. Gaps between tokens are compared with 8 streams at once; the time to the first
token with one at a time, because among several who comes a moment later waits for a whole step, however he comes. Then
1,000 clients stream at once, three times over, from an engine that answers at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import psutil
import uvloop
from report import Report, parser
from sse.client import Streamed, stream_completion

from pilotfish.bench.quantiles import nearest_rank
from pilotfish.client.answer import GenerateOptions
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import Config, EmulationConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.launch.local_stack import LocalStack
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Verdict
from pilotfish.types import SamplingParams

PROFILE = "a100-70b"
NUM_STREAMS = 8
NUM_CONNECTIONS = 1000
PROMPT = "the old pilot fish and the shark"
Path = Callable[[int, int], Awaitable[list[Streamed]]]
"""(streams at once, tokens of each) to how they went."""


def emulated_config(profile: str, num_sequences: int) -> Config:
    emulation = EmulationConfig(profile=profile, max_sequences=num_sequences, kv_cache_tokens=1 << 20)
    config = Config(emulation=emulation)
    orchestrator = dataclasses.replace(config.orchestrator, max_concurrent_requests=num_sequences)
    draft = dataclasses.replace(config.draft, num_replicas=0)
    return dataclasses.replace(config, orchestrator=orchestrator, draft=draft)


def body(num_tokens: int) -> dict[str, object]:
    speculation = {"mode": "off"}
    return {"prompt": PROMPT, "max_tokens": num_tokens, "ignore_eos": True, "seed": 1, "speculation": speculation}


async def engine_alone(
    engine: EmulatedEngine, prompt: tuple[int, ...], num_streams: int, num_tokens: int
) -> list[Streamed]:
    """What the replica's front would see."""
    first_id = time.monotonic_ns()
    answers = {first_id + index: Streamed(time.monotonic_ns()) for index in range(num_streams)}
    sampling = SamplingParams(max_tokens=num_tokens)
    for sequence_id in answers:
        engine.send([OpenSequence(sequence_id, prompt, sampling), Decode(sequence_id, len(prompt), num_tokens)])
    while any(len(answer.arrivals_ns) < num_tokens for answer in answers.values()):
        for event in await engine.receive():
            if isinstance(event, Verdict):
                answers[event.sequence_id].arrivals_ns.append(time.monotonic_ns())
    engine.send([CloseSequence(sequence_id) for sequence_id in answers])
    return list(answers.values())


async def over_grpc(client: AsyncInferenceClient, num_streams: int, num_tokens: int) -> list[Streamed]:
    options = GenerateOptions(max_tokens=num_tokens, ignore_eos=True, speculation="off", seed=1)

    async def one() -> Streamed:
        streamed = Streamed(time.monotonic_ns())
        await client.follow(
            PROMPT, options, timeout_s=600, on_tokens=lambda _: streamed.arrivals_ns.append(time.monotonic_ns())
        )
        return streamed

    return await asyncio.gather(*(one() for _ in range(num_streams)))


async def over_http(url: str, num_streams: int, num_tokens: int) -> list[Streamed]:
    return await asyncio.gather(*(stream_completion(url, body(num_tokens)) for _ in range(num_streams)))


async def compare(stack: LocalStack, report: Report, *, num_tokens: int, rounds: int) -> None:
    engine = start_emulated_engine(stack.config, "target")
    prompt = tuple(range(300, 308))
    gaps_ms: dict[str, list[float]] = {}
    first_ms: dict[str, list[float]] = {}
    async with AsyncInferenceClient(stack.address) as client:
        paths: dict[str, Path] = {
            "engine alone": partial(engine_alone, engine, prompt),
            "gRPC": partial(over_grpc, client),
            "HTTP": partial(over_http, stack.http_url),
        }
        for run in paths.values():
            await run(NUM_STREAMS, num_tokens)  # warms up
        for _ in range(rounds):
            for name, run in paths.items():
                for answer in await run(NUM_STREAMS, num_tokens):
                    gaps = [(later - earlier) / 1e6 for earlier, later in pairwise(answer.arrivals_ns)]
                    gaps_ms.setdefault(name, []).extend(gaps)
        for _ in range(5 * rounds):
            for name, run in paths.items():
                (answer,) = await run(1, 2)
                first_ms.setdefault(name, []).append(answer.time_to_first_token_s * 1e3)
    await engine.close()
    tell(report, gaps_ms, first_ms)


def tell(report: Report, gaps_ms: Mapping[str, Sequence[float]], first_ms: Mapping[str, Sequence[float]]) -> None:
    for name, gaps in gaps_ms.items():
        figures = {"gap_median_ms": statistics.median(gaps), "gap_p99_ms": p99(gaps)}
        report.row(path=name, **figures, first_token_ms=statistics.median(first_ms[name]))
    alone, alone_first_ms = gaps_ms["engine alone"], statistics.median(first_ms["engine alone"])
    for name in ("gRPC", "HTTP"):
        added_ms = statistics.median(gaps_ms[name]) - statistics.median(alone)
        report.check(f"{name}: added gap between tokens, median", added_ms, 1.0, "ms")
        report.check(f"{name}: added gap between tokens, p99", p99(gaps_ms[name]) - p99(alone), 5.0, "ms")
        report.check(
            f"{name}: added time to first token", statistics.median(first_ms[name]) - alone_first_ms, 5.0, "ms"
        )


async def crowd(stack: LocalStack, report: Report, *, num_tokens: int) -> None:
    """1,000 connections at once, three times over."""
    process = psutil.Process(stack.pid("orchestrator"))
    resident_mb, num_failed, spreads = [], 0, []
    for _ in range(3):
        start = time.monotonic_ns()
        results = await asyncio.gather(
            *(stream_completion(stack.http_url, body(num_tokens)) for _ in range(NUM_CONNECTIONS)),
            return_exceptions=True,
        )
        elapsed_s = (time.monotonic_ns() - start) / 1e9
        good = [each for each in results if isinstance(each, Streamed) and each.status == 200 and each.is_done]
        num_failed += NUM_CONNECTIONS - len(good)
        durations = [each.duration_s for each in good]
        spreads.append(p99(durations) / statistics.median(durations))
        resident_mb.append(process.memory_info().rss / 1e6)
        report.row(
            path=f"{NUM_CONNECTIONS} streams of {num_tokens} tokens in {elapsed_s:.2f} s",
            tokens_per_s=len(good) * num_tokens / elapsed_s,
            resident_mb=resident_mb[-1],
            p99_over_median=spreads[-1],
        )
    report.check(f"{NUM_CONNECTIONS} streams at once, three times: failures", num_failed, 0, "")
    report.check("resident memory after the third time over the first", resident_mb[-1] / resident_mb[0], 1.05)
    report.check("fair: p99 of the streams' durations over the median", statistics.median(spreads), 1.5)


def p99(values: Sequence[float]) -> float:
    return nearest_rank(sorted(values), 0.99)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_tokens, rounds = (64, 3) if options.quick else (256, 10)
    conditions = {"profile": PROFILE, "streams": NUM_STREAMS, "tokens": num_tokens, "rounds": rounds}
    report = Report("What do HTTP and gRPC streaming cost over the engine?", {**conditions, "EMULATED": "yes"})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with LocalStack(emulated_config(PROFILE, NUM_STREAMS)) as stack:
            runner.run(compare(stack, report, num_tokens=num_tokens, rounds=rounds))
        with LocalStack(emulated_config("instant", NUM_CONNECTIONS)) as stack:
            runner.run(crowd(stack, report, num_tokens=num_tokens))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
