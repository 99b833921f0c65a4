"""The target's features travel through real services to a head in the draft service, and its drafts back."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio
import pytest
import torch

from draft_service.server import start_draft
from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, config_from_dict
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.engine.process.factory import build_engine
from pilotfish.engine.process.head_factory import build_head_engine
from pilotfish.messages import Event, Proposal
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc
from target_service.server import start_target
from tests.support.threaded_engine import ThreadedEngine


class Stack:
    """A target, a head and an orchestrator over loopback gRPC; the engines run on threads."""

    def __init__(self, config: Config, exits: contextlib.AsyncExitStack) -> None:
        self.config = config
        self.directory = ReplicaDirectory()
        self.proposals: list[Proposal] = []
        """All that the heads have answered."""
        self._exits = exits
        self.stub: inference_pb2_grpc.InferenceStub
        self.orchestrator: OrchestratorServer

    async def start(self) -> None:
        target = await start_target(self.config, engine=ThreadedEngine(build_engine(self.config, "target")))
        self._exits.push_async_callback(target.drain_and_stop, 0)
        self.directory.set_replicas("target", {target.address: target.address})
        self.orchestrator = await OrchestratorServer.start(self.config, self.directory)
        self._exits.push_async_callback(self.orchestrator.drain_and_stop, 0)
        channel = grpc.aio.insecure_channel(self.orchestrator.address)
        self._exits.push_async_callback(channel.close)
        self.stub = inference_pb2_grpc.InferenceStub(channel)

    async def start_head(self) -> ReplicaServer:
        core = build_head_engine(self.config)
        self._record(core)
        draft = await start_draft(self.config, engine=ThreadedEngine(core))
        self._exits.push_async_callback(draft.drain_and_stop, 0)
        self.directory.set_replicas("draft", {draft.address: draft.address})
        await until(lambda: any(link.is_connected for link in self.orchestrator.service.drafts.links))
        return draft

    def _record(self, core: HeadCore) -> None:
        step = core.step

        def recorded() -> list[Event]:
            events = step()
            self.proposals.extend(event for event in events if isinstance(event, Proposal))
            return events

        core.step = recorded  # type: ignore[method-assign]

    def generate(self, *, speculate: bool, temperature: float = 0.0) -> Answer:
        mode = pb.SPECULATION_MODE_ON if speculate else pb.SPECULATION_MODE_OFF
        request = pb.GenerateRequest(
            text="The pilot fish swims ahead; the big one decides.",
            max_tokens=60,
            temperature=temperature,
            seed=11,
            speculation=pb.SpeculationOptions(mode=mode, num_speculative_tokens=4),
        )
        return Answer(self.stub.Generate(request, timeout=60))


class Answer:
    """One answer, chunk by chunk."""

    def __init__(self, call: AsyncIterator[pb.GenerateResponse]) -> None:
        self._call = call
        self.token_ids: list[int] = []
        self.summary = pb.Summary()

    async def read(self, num_tokens: int = 1 << 30) -> Answer:
        """Until there are num_tokens tokens, or the end."""
        async for message in self._call:
            self.token_ids.extend(message.chunk.token_ids)
            if message.HasField("summary"):
                self.summary = message.summary
            elif len(self.token_ids) >= num_tokens:
                break
        return self


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens elsewhere; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110  # what is awaited has no event that a test could see
        await asyncio.sleep(0.005)


@pytest.fixture
async def make_stack(target_folder: Path, head_folder: Path, tmp_path: Path) -> AsyncIterator[Callable[..., Stack]]:
    threads = torch.get_num_threads()
    async with contextlib.AsyncExitStack() as exits:

        def make(**draft: str) -> Stack:
            engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}
            config = config_from_dict(
                {
                    "target": {"model": str(target_folder), "port": 0, "engine": engine},
                    "draft": {
                        "proposer": "eagle3",
                        "model": str(target_folder),
                        "head": str(head_folder),
                        "port": 0,
                        "engine": engine,
                        **draft,
                    },
                    "orchestrator": {"port": 0, "speculation": {"draft_deadline_ms": 10000, "decode_run_tokens": 4}},
                    "cache_dir": str(tmp_path),
                }
            )
            return Stack(config, exits)

        yield make
    torch.set_num_threads(threads)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("feature_format", ["bf16", "fp8"])
async def test_the_text_is_that_of_plain_decoding(
    make_stack: Callable[..., Stack], feature_format: str, temperature: float
) -> None:
    stack = make_stack(feature_format=feature_format)
    await stack.start()
    await stack.start_head()
    plain = await stack.generate(speculate=False, temperature=temperature).read()
    assert not stack.proposals
    drafted = await stack.generate(speculate=True, temperature=temperature).read()
    assert drafted.token_ids == plain.token_ids
    assert len(plain.token_ids) > 20
    assert drafted.summary.speculation.num_draft_tokens > 0
    assert all(proposal.draft_token_ids for proposal in stack.proposals)


async def test_a_head_that_dies_and_comes_back_costs_only_drafts(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack()
    await stack.start()
    first = await stack.start_head()
    plain = await stack.generate(speculate=False).read()
    answer = await stack.generate(speculate=True).read(10)
    before = list(stack.proposals)
    assert before
    await first.drain_and_stop(0)
    await answer.read(20)
    await stack.start_head()
    await answer.read()
    assert answer.token_ids == plain.token_ids
    # The new replica was told of the window that the orchestrator has kept: its first answer has drafts.
    after = [proposal for proposal in stack.proposals if proposal not in before]
    assert after
    assert all(proposal.draft_token_ids for proposal in after)


async def test_a_target_that_keeps_no_features_says_so(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack()
    stack.config = dataclasses.replace(stack.config, target=dataclasses.replace(stack.config.target, feature_layers=()))
    await stack.start()
    await stack.start_head()
    answer = await stack.generate(speculate=True).read()
    assert answer.summary.speculation.num_draft_tokens == 0
    assert "needs features of the target's layers [2, 3, 3], and the target keeps none" in (
        answer.summary.speculation.reason
    )
