"""Clients that mean harm, 64 at once, and one that does not: what the service holds, how long its loop is held, and how
long the well-behaved one waits, beside what it waits alone.

Attackers have machines of their own. Here they run in one process that gets only the cores' idle time (SCHED_IDLE), and
`attackers_cores` says how much that was: near 0 on a busy machine, where nothing is measured. All that the services do
with what is sent counts. All come from one address, as behind a proxy that lets everything pass."""

import asyncio
import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio
import httpx
import shared.checkout  # noqa: F401  # finds tests.support

from orchestrator.__main__ import start as start_orchestrator
from orchestrator.server import SERVICE_NAME, OrchestratorServer
from pilotfish.config import Config
from pilotfish.rpc.command import run_service
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.v1 import inference_pb2
from target_service.server import start_target
from tests.support.raw_http2 import call_head, data_frame, message_head

NUM_CLIENTS = 64
NUM_ANSWERS = 20
"""Answers to the well-behaved client, alone and beside each kind of hostile ones."""
TICK_S = 0.005
ATTACK_S = 5.0
"""Time from the first hostile request until the well-behaved client asks."""
POST = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
GENERATE = f"/{SERVICE_NAME}/Generate"
ASKED = {"max_lag_ms": 50.0, "grown_mb": 100.0, "slower": 1.5, "slower_grpc": 1.5}


@dataclass(frozen=True)
class Address:
    """The host:port of each API of a server."""

    http: str
    grpc: str


@dataclass(frozen=True)
class Measured:
    """The server's worst figures since it was last asked."""

    max_lag_ms: float
    resident_mb: float


Client = Callable[[Address], Awaitable[None]]


async def sends(address: str, begin: bytes, again: bytes, pause_s: float) -> None:
    """Sends one thing, then another again and again, and reads nothing, until the server has enough."""
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(begin)
        while True:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(pause_s)
    finally:
        writer.close()


def raw(begin: bytes, again: bytes, pause_s: float = 0.0) -> Client:
    return lambda address: sends(address.http, begin, again, pause_s)


def asks(path: str, method: str = "POST", **options: Any) -> Client:
    async def ask(address: Address) -> None:
        async with httpx.AsyncClient(base_url=f"http://{address.http}", timeout=600) as http:
            await http.request(method, path, **options)

    return ask


async def _opens_calls(address: Address) -> None:
    async with grpc.aio.insecure_channel(address.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        calls = [channel.stream_stream(GENERATE)() for _ in range(100)]
        await asyncio.gather(*(call.code() for call in calls))


async def _sends_a_message_slowly(address: Address) -> None:
    begin = call_head(GENERATE, {}) + data_frame(message_head(4_000_000))
    await sends(address.grpc, begin + 3 * data_frame(b"x" * 16_000), data_frame(b"x"), 0.2)


async def _sends_messages(address: Address, num_bytes: int = 15_000_000) -> None:
    async with grpc.aio.insecure_channel(address.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        await channel.unary_unary(GENERATE)(b"\x0a\xff\xff\xff\x07" + b"x" * num_bytes, timeout=60)


DIGITS = b'{"prompt":"' + 3_900_000 * b"7" + b'"}'
HOSTILE: dict[str, Client] = {
    "trailers, greedy": raw(CHUNKED + b"0\r\n", b"x-client-id: forged\r\n" * 3000),
    "trailers, slow": raw(CHUNKED + b"0\r\n", b"a: b\r\n", 0.2),
    "tiny chunks": raw(CHUNKED, b"1\r\n \r\n" * 10_000),
    "offers, greedy": raw(b"", POST + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{}"),
    "heads, slow": raw(POST, b"a: b\r\n", 0.2),
    "nothing, slow": raw(b"", b"", 0.2),
    "answers not read": raw(b"", b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 10),
    "bodies of GET, greedy": asks("/health", "GET", content=b"x" * 30_000_000),
    "bodies of GET, slow": raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n", b"x", 0.2),
    "prompts, greedy": asks("/tokenize", content=DIGITS),
    "token ids, greedy": asks("/detokenize", json={"tokens": [7] * 4000}),
    "scores, greedy": asks(
        "/v1/completions", json={"prompt": [7] * 1000, "max_tokens": 1, "n": 8, "prompt_logprobs": 5}
    ),
    "JSON, greedy": asks("/v1/chat/completions", content=b'{"messages":[{"a":[' + 1_300_000 * b"[]," + b"1]}]}"),
    "gRPC messages, greedy": _sends_messages,
    "gRPC messages, slow": _sends_a_message_slowly,
    "gRPC messages of 4 MB, greedy": lambda address: _sends_messages(address, 3_900_000),
    "gRPC calls, slow": _opens_calls,
}
"""Attackers by what they do: on and on, again when they are refused."""


async def measure_hostile(kinds: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
    """A row for each of these kinds of hostile clients."""
    context = multiprocessing.get_context("spawn")
    for name in kinds:
        ours, theirs = context.Pipe()
        target = context.Process(target=_serve_target, args=(theirs,), daemon=True)
        target.start()
        process = context.Process(target=_serve, args=(theirs, await asyncio.to_thread(ours.recv)), daemon=True)
        process.start()
        try:
            address = await asyncio.to_thread(ours.recv)
            await _measured(ours)  # that of the start is forgotten
            alone_s = await _answers_s(address)
            before = await _measured(ours)
            begun, begins = context.Pipe()
            hostile = context.Process(target=_attack, args=(name, address, begins), daemon=True)
            hostile.start()
            try:
                await asyncio.to_thread(begun.recv)
                begun_s, before_s = time.perf_counter(), _processor_s(hostile.pid)
                await asyncio.sleep(ATTACK_S)
                beside_s = await _answers_s(address)
                after = await _measured(ours)
                attackers_cores = (_processor_s(hostile.pid) - before_s) / (time.perf_counter() - begun_s)
            finally:
                hostile.kill()
                hostile.join()
            yield {
                "clients": name,
                "lag_alone_ms": round(before.max_lag_ms, 1),
                "max_lag_ms": round(after.max_lag_ms, 1),
                "grown_mb": round(after.resident_mb - before.resident_mb, 1),
                "alone_ms": round(1000 * alone_s[0], 1),
                "beside_ms": round(1000 * beside_s[0], 1),
                "slower": round(beside_s[0] / alone_s[0], 2),
                "slower_grpc": round(beside_s[1] / alone_s[1], 2),
                "attackers_cores": round(attackers_cores, 2),
            }
        finally:
            for each in (process, target):
                each.kill()
                each.join()


def _attack(name: str, address: Address, begins: Connection) -> None:
    """Attack in a process of its own, until it is killed. It gets what the services and the well-behaved client leave
    of the cores, for attackers compute on machines of their own; what it sends is the services' to bear."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    begins.send(None)

    async def all_of_them() -> None:
        await asyncio.gather(*(_again(HOSTILE[name], address) for _ in range(NUM_CLIENTS)))

    asyncio.run(all_of_them())


async def _again(client: Client, address: Address) -> None:
    while True:
        with contextlib.suppress(OSError, httpx.HTTPError, grpc.aio.AioRpcError):
            await client(address)
        await asyncio.sleep(0.01)


async def _answers_s(address: Address) -> tuple[float, float]:
    """The medians of a well-behaved client, over HTTP and over gRPC."""
    fields = {"max_tokens": 16, "ignore_eos": True}
    body = {"prompt": "a small fish", **fields}
    message = inference_pb2.GenerateRequest(text="a small fish", **fields).SerializeToString()
    who = {"x-client-id": "modest"}
    taken_s: tuple[list[float], list[float]] = ([], [])
    async with (
        httpx.AsyncClient(base_url=f"http://{address.http}", timeout=60) as http,
        grpc.aio.insecure_channel(address.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        generate = channel.unary_stream(GENERATE)
        for _ in range(NUM_ANSWERS):
            begun_s = time.perf_counter()
            (await http.post("/v1/completions", json=body, headers=who)).raise_for_status()
            then_s = time.perf_counter()
            assert [piece async for piece in generate(message, timeout=60, metadata=tuple(who.items()))]
            taken_s[0].append(then_s - begun_s)
            taken_s[1].append(time.perf_counter() - then_s)
    return statistics.median(taken_s[0]), statistics.median(taken_s[1])


async def _measured(server: Connection) -> Measured:
    server.send(None)
    measured: Measured = await asyncio.to_thread(server.recv)
    return measured


SERVED = ["--set", "emulation.profile=instant"]
"""Engines that cost nothing."""


def _serve_target(main: Connection) -> None:
    """Serve a target in a process of its own, as its engine would hold up an orchestrator beside it, until it is
    killed."""

    async def start(config: Config) -> ReplicaServer:
        target = await start_target(config)
        main.send(target.address)
        return target

    run_service("target_service", start, lambda _: "", [*SERVED, "--set", "target.port=0"])


def _serve(main: Connection, target: str) -> None:
    """Serve an orchestrator over the target, as it is run, in a process of its own, until it is killed."""
    tasks = set()

    async def start(config: Config) -> OrchestratorServer:
        orchestrator = await start_orchestrator(config)
        tasks.add(asyncio.create_task(_measure(main, orchestrator)))
        return orchestrator

    settings = ("orchestrator.port=0", f"orchestrator.target_addresses=[{target}]")
    run_service("orchestrator", start, lambda _: "", [*SERVED, *(f"--set={setting}" for setting in settings)])


async def _measure(main: Connection, orchestrator: OrchestratorServer) -> None:
    """Until the process ends."""
    main.send(Address(orchestrator.http_url.removeprefix("http://"), orchestrator.address))
    most = Measured(0.0, 0.0)

    async def tick() -> None:
        nonlocal most
        while True:
            due_s = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            lag_ms = 1000 * (time.perf_counter() - due_s)
            most = Measured(max(most.max_lag_ms, lag_ms), max(most.resident_mb, _resident_mb()))

    ticking = asyncio.create_task(tick())
    while True:
        await asyncio.to_thread(main.recv)
        main.send(most)
        most = Measured(0.0, 0.0)
        assert not ticking.done()


def _processor_s(process: int | None) -> float:
    """What a process has had so far, of all cores."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:  # noqa: PTH123
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096 / 1e6
