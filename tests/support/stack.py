"""The services in this process, on free ports of the loopback interface, and requests to them."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import grpc.aio
import httpx
import uvloop

from draft_service.server import start_draft
from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from pilotfish.config import Config
from pilotfish.engine_client import EngineClient
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc
from target_service.server import start_target
from tests.support.loop_thread import LoopThread

READY_TIMEOUT_S = 60.0


@dataclass
class Answer:
    """As far as it was read."""

    token_ids: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    text: str = ""
    summary: pb.Summary | None = None

    def add(self, response: pb.GenerateResponse) -> None:
        self.token_ids.extend(response.chunk.token_ids)
        self.origins.extend(response.chunk.origins)
        self.text += response.chunk.text
        if response.HasField("summary"):
            self.summary = response.summary

    @property
    def speculation(self) -> pb.SpeculationStats:
        assert self.summary is not None
        return self.summary.speculation


@dataclass
class Stack:
    """A target, an orchestrator, and a drafter if there is one."""

    directory: ReplicaDirectory
    """Of the orchestrator."""
    target: ReplicaServer
    orchestrator: OrchestratorServer
    draft: ReplicaServer | None = None

    @contextlib.asynccontextmanager
    async def call(
        self, text: str = "a small fish", metadata: tuple[tuple[str, str], ...] = (), **fields: Any
    ) -> AsyncIterator[Any]:
        """A request under way. fields: of GenerateRequest; `speculation` as a dict."""
        speculation = pb.SpeculationOptions(**fields.pop("speculation", {}))
        request = pb.GenerateRequest(
            text=text, speculation=speculation, **{"max_tokens": 40, "ignore_eos": "grammar" not in fields, **fields}
        )
        async with grpc.aio.insecure_channel(self.orchestrator.address) as channel:
            yield inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60, metadata=metadata)

    async def ask(self, *arguments: Any, **fields: Any) -> Answer:
        """The whole answer; see `call`."""
        answer = Answer()
        async with self.call(*arguments, **fields) as call:
            async for response in call:
                answer.add(response)
        return answer


@contextlib.asynccontextmanager
async def running_stack(
    config: Config,
    *,
    with_draft: bool = True,
    target_engine: EngineClient | None = None,
    draft_engine: EngineClient | None = None,
) -> AsyncIterator[Stack]:
    """All are connected inside the block and have stopped after it. Without an engine a service starts its own."""
    config = dataclasses.replace(
        config,
        target=dataclasses.replace(config.target, port=0),
        draft=dataclasses.replace(config.draft, port=0),
    )
    async with contextlib.AsyncExitStack() as exits:
        target = await start_target(config, engine=target_engine)
        exits.push_async_callback(target.drain_and_stop, 0)
        addresses = {"target_addresses": (target.address,)}
        draft = None
        if with_draft:
            draft = await start_draft(config, engine=draft_engine)
            exits.push_async_callback(draft.drain_and_stop, 0)
            addresses["draft_addresses"] = (draft.address,)
        section = dataclasses.replace(config.orchestrator, port=0, **addresses)  # type: ignore[arg-type]
        config = dataclasses.replace(config, orchestrator=section)
        directory = ReplicaDirectory.from_config(config)
        orchestrator = await OrchestratorServer.start(config, directory)
        exits.push_async_callback(orchestrator.drain_and_stop, 0)
        assert await orchestrator.wait_ready(READY_TIMEOUT_S)
        if with_draft:
            await orchestrator.service.drafts.connected(READY_TIMEOUT_S)
        yield Stack(directory, target, orchestrator, draft)


class StackThread:
    """`with StackThread(config) as server`: the same on a thread of its own, for clients that block."""

    def __init__(
        self, config: Config, make_engine: Callable[[], EngineClient] | None = None, *, with_draft: bool = False
    ) -> None:
        """make_engine: makes the target's, on the services' event loop."""
        self._config, self._make_engine, self._with_draft = config, make_engine, with_draft
        self._exits = contextlib.AsyncExitStack()
        self.engine: Any = None
        self.stack: Stack
        self.http: httpx.Client
        """Of its HTTP API. One for all, because each reads this machine's certificates unless told not to."""

    def __enter__(self) -> Self:
        self._loop = LoopThread(make_loop=uvloop.new_event_loop, name="services")
        try:
            self.call(self._start())
        except BaseException:
            self._loop.close()  # else its thread keeps pytest from ending
            raise
        self.http = httpx.Client(base_url=self.url, timeout=60, verify=False)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.http.close()
            self.stop()
        finally:
            self._loop.close()

    async def _start(self) -> None:
        self.engine = self._make_engine() if self._make_engine else None
        running = running_stack(self._config, with_draft=self._with_draft, target_engine=self.engine)
        self.stack = await self._exits.enter_async_context(running)

    @property
    def orchestrator(self) -> OrchestratorServer:
        return self.stack.orchestrator

    @property
    def url(self) -> str:
        return self.orchestrator.http_url

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the services' event loop."""
        return self._loop.run(work)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """For something that happens on the services' event loop; the test's own timeout bounds it."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110  # what is awaited has no event that a test could see
                await asyncio.sleep(0.001)

        self.call(wait())

    def wait_until_idle(self) -> None:
        """Until no request runs and no sequence is held."""
        queue = self.orchestrator.service.request_queue
        self.wait_until(lambda: queue.num_running == queue.num_waiting == 0 and self.engine.num_sequences == 0)

    @contextlib.contextmanager
    def other_orchestrator(self, **settings: Any) -> Iterator[httpx.Client]:
        """Of the same target, with these settings in its section; a client of its HTTP API."""
        section = dataclasses.replace(
            self._config.orchestrator, port=0, target_addresses=(self.stack.target.address,), **settings
        )
        config = dataclasses.replace(self._config, orchestrator=section)
        orchestrator = self.call(OrchestratorServer.start(config))
        try:
            assert self.call(orchestrator.wait_ready(READY_TIMEOUT_S))
            with httpx.Client(base_url=orchestrator.http_url, timeout=60, verify=False) as client:
                yield client
        finally:
            self.call(orchestrator.drain_and_stop(0))

    def stop(self) -> None:
        """All services. Idempotent."""
        self.call(self._exits.aclose())
