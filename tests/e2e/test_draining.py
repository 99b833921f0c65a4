"""SIGTERM while answers are made: they are finished, others refused, and a second signal ends it all at once."""

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from pilotfish.client.answer import GenerateOptions
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.errors import UnavailableError
from pilotfish.launch.specs import free_ports
from tests.e2e.conftest import CliProcess, UpProcess

NUM_TOKENS = 190
"""At 80 ms each: an answer of 15 s, which is half of the default drain_s."""
SLOW = ("--set", "emulation.profile=a100-70b", "--set", "emulation.time_scale=10")
ENDLESS = ("--set", "deployment.orchestrator.drain_s=3600")
FIELDS = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "speculation": {"mode": "off"}}
CHAT = {"messages": [{"role": "user", "content": "sea"}]}


@dataclass
class Services:
    """Running, and who must be told to stop them."""

    processes: list[CliProcess]
    address: str
    http_url: str

    def signal(self) -> None:
        for process in self.processes:
            process.send(signal.SIGTERM)

    def assert_ended(self, *statuses: int) -> None:
        """statuses: that their processes may end with, beside 0."""
        assert {process.wait() for process in self.processes} <= {0, *statuses}
        assert not any(process.left() for process in self.processes)


def up(*arguments: str) -> Services:
    """`pilotfish serve`, which stops them one after the other."""
    process = UpProcess(*SLOW, *arguments)
    address = process.address
    return Services([process], address, process.wait_for(r"(http://[^/\s,)]+)")[1])


def plain(*arguments: str) -> Services:
    """A process each, as containers run them, all told at the same time."""
    target, draft, grpc, http = free_ports(4)
    settings = (
        *(
            f"target.port={target}",
            f"draft.port={draft}",
            f"orchestrator.port={grpc}",
            f"orchestrator.http.port={http}",
        ),
        f"orchestrator.target_addresses=[127.0.0.1:{target}]",
        f"orchestrator.draft_addresses=[127.0.0.1:{draft}]",
        "security.internal.allow_unauthenticated=true",
    )
    options = [*SLOW, *arguments, *(part for setting in settings for part in ("--set", setting))]
    processes = [CliProcess("service", role, *options) for role in ("target", "draft", "orchestrator")]
    for process in processes:
        process.wait_for("ready on")
    return Services(processes, f"127.0.0.1:{grpc}", f"http://127.0.0.1:{http}")


@pytest.fixture
def start() -> Iterator[Callable[..., Services]]:
    """Starts services in one of the two ways; what still runs at the end is killed."""
    started: list[Services] = []

    def start(way: Callable[..., Services], *arguments: str) -> Services:
        started.append(way(*arguments))
        return started[-1]

    yield start
    for process in (each for services in started for each in services.processes):
        if process.process.poll() is None:
            process.stop(signal.SIGKILL)
        print(*process.lines, sep="\n")  # shown where the test fails


class Client:
    """Requests under way, in every manner."""

    def __init__(self, http: httpx.AsyncClient, grpc: AsyncInferenceClient) -> None:
        self._http, self._grpc = http, grpc

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, services: Services) -> AsyncIterator["Client"]:
        async with (
            httpx.AsyncClient(base_url=services.http_url, timeout=120) as http,
            AsyncInferenceClient(services.address) as grpc,
        ):
            yield cls(http, grpc)

    async def streamed(self) -> int:
        num_tokens, options = 0, {"stream_options": {"include_usage": True}, "stream": True}
        async with self._http.stream("POST", "/v1/chat/completions", json={**CHAT, **FIELDS, **options}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    assert "error" not in event
                    num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
        assert line == ""
        return num_tokens

    async def whole(self) -> int:
        answer = await self._http.post("/v1/completions", json={"prompt": "sea", **FIELDS})
        return answer.json()["usage"]["completion_tokens"]

    async def over_grpc(self) -> int:
        options = GenerateOptions(max_tokens=NUM_TOKENS, ignore_eos=True, speculation="off")
        return (await self._grpc.follow("sea", options, timeout_s=120, on_tokens=lambda _: None)).num_output_tokens

    async def has_running(self, count: int) -> None:
        """Until so many requests are being served; the test's own timeout bounds it."""
        running = re.compile(rf"pilotfish_num_requests_running\{{.*\}} {count}\.0")
        while not running.search((await self._http.get("/metrics")).text):
            pass

    async def is_refused(self) -> None:
        """Until the service has heard of its end; then it is not ready, and takes nothing more."""
        while (await self._http.get("/ready")).status_code == 200:
            pass
        answer = await self._http.post("/v1/completions", json={"prompt": "sea"})
        assert (answer.status_code, answer.headers["connection"]) == (503, "close")
        with pytest.raises(UnavailableError):
            await self.over_grpc()


async def finish_what_was_begun(services: Services) -> None:
    async with Client.of(services) as client:
        answers = [asyncio.create_task(work()) for work in (client.streamed, client.whole, client.over_grpc)]
        await client.has_running(len(answers))
        await asyncio.to_thread(services.signal)
        await client.is_refused()
        assert not any(answer.done() for answer in answers)
        assert await asyncio.gather(*answers) == [NUM_TOKENS] * len(answers)
    await asyncio.to_thread(services.assert_ended)


async def test_answers_under_way_are_finished(start: Callable) -> None:
    """Both ways at the same time: all that they do is wait."""
    await asyncio.gather(*(finish_what_was_begun(start(way)) for way in (up, plain)))


@pytest.mark.parametrize("way", [up, plain])
async def test_a_second_signal_ends_it_at_once(start: Callable, way: Callable[..., Services]) -> None:
    services = start(way, *ENDLESS)
    async with Client.of(services) as client:
        answers = [asyncio.create_task(work()) for work in (client.streamed, client.over_grpc)]
        await client.has_running(len(answers))
        await asyncio.to_thread(services.signal)
        await client.is_refused()
        await asyncio.to_thread(services.signal)
        # The drafter has nothing to finish: the signal may find it as good as gone.
        await asyncio.to_thread(services.assert_ended, -signal.SIGTERM)
        assert not any(isinstance(end, int) for end in await asyncio.gather(*answers, return_exceptions=True))
