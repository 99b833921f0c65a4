"""An orchestrator, requests to it and when their tokens came; many streams at once from clients that cost little."""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import grpc.aio
import shared.checkout  # noqa: F401  # finds tests.support

from pilotfish.client.answer import GenerateOptions, TokenPrompt
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import Config, config_to_yaml
from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from pilotfish.rpc.v1 import types_pb2
from tests.support.service_process import ServiceProcess

_TIMEOUT_S = 300.0


@dataclass(slots=True)
class Arrival:
    """Tokens that came together."""

    time_s: float
    num_tokens: int
    num_plain: int
    """The part of num_tokens that was decoded without a draft."""


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
    """A connection to the orchestrator at this address."""
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


Protocol = Literal["gRPC", "HTTP"]
FIRST_TOKEN_ID = 1000
PROMPT_TOKENS = 64
_EVENT, _END = b"data: {", b"data: [DONE]"


@dataclass(slots=True)
class Heard:
    """What the clients of some streams got."""

    num_tokens: int = 0
    num_messages: int = 0
    first_token_s: list[float] = field(default_factory=list)
    """Time from asking to the first message, of each stream."""
    total_s: list[float] = field(default_factory=list)
    """Time from asking to the end, of each stream."""


async def listen(
    protocol: Protocol, address: str, num_streams: int, *, num_tokens: int, speculation: Literal["off", "on"]
) -> Heard:
    """num_streams answers at once, of num_tokens each. Raises PilotfishError or ValueError where one fails."""
    heard = Heard()
    # No two prompts are the same, so that no answer profits from another.
    starts = range(FIRST_TOKEN_ID, FIRST_TOKEN_ID + num_streams)
    prompts = [tuple(range(start, start + PROMPT_TOKENS)) for start in starts]
    if protocol == "HTTP":
        body = {"max_tokens": num_tokens, "temperature": 0, "ignore_eos": True, "speculation": {"mode": speculation}}
        await asyncio.gather(*(_over_http(address, {**body, "prompt": prompt}, heard) for prompt in prompts))
        return heard
    options = GenerateOptions(max_tokens=num_tokens, temperature=0, ignore_eos=True, speculation=speculation)
    async with AsyncInferenceClient(address, num_channels=4) as client:
        await asyncio.gather(*(_over_grpc(client, TokenPrompt(prompt), options, heard) for prompt in prompts))
    return heard


async def _over_grpc(client: AsyncInferenceClient, prompt: TokenPrompt, options: GenerateOptions, heard: Heard) -> None:
    start_s, first_s = time.perf_counter(), 0.0

    def on_tokens(token_ids: Sequence[int]) -> None:
        nonlocal first_s
        first_s = first_s or time.perf_counter() - start_s
        heard.num_tokens += len(token_ids)
        heard.num_messages += 1

    await client.follow(prompt, options, timeout_s=_TIMEOUT_S, on_tokens=on_tokens)
    heard.first_token_s.append(first_s)
    heard.total_s.append(time.perf_counter() - start_s)


async def _over_http(url: str, body: dict[str, Any], heard: Heard) -> None:
    """POST /v1/completions with `stream`, on a connection of its own that is open before the clock starts."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 20)
    data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {place.netloc}\r\ncontent-length: {len(data)}\r\n"
    start_s, first_s, last, line = time.perf_counter(), 0.0, b"", b""
    try:
        writer.write(f"{head}connection: close\r\n\r\n".encode() + data)
        while line := await reader.readline():
            if line.startswith(_EVENT):
                first_s = first_s or time.perf_counter() - start_s
                last = line
                heard.num_messages += 1
            elif line.startswith(_END):
                break
    finally:
        writer.close()
        await writer.wait_closed()
    if not line:
        raise ValueError(f"a stream broke off after {last[:200]!r}")
    heard.num_tokens += json.loads(last.removeprefix(b"data: "))["usage"]["completion_tokens"]
    heard.num_messages -= 1  # the one with the usage
    heard.first_token_s.append(first_s)
    heard.total_s.append(time.perf_counter() - start_s)


@contextlib.contextmanager
def orchestrator(config: Config) -> Iterator[ServiceProcess]:
    """Start it over the configuration's target_addresses and draft_addresses, on free ports.

    Raises UnavailableError when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(config_to_yaml(config), encoding="utf-8")
        arguments = ["--config", str(path), "--set", "orchestrator.http.port=0"]
        with ServiceProcess("orchestrator", arguments) as process:
            yield process
