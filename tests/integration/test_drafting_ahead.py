"""Drafting ahead through the whole stack: real gRPC and sessions, engines that take a 70B's time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
import torch

from draft_service.server import start_draft
from orchestrator.server import OrchestratorServer
from pilotfish.config import (
    Config,
    DraftConfig,
    EmulationConfig,
    OrchestratorConfig,
    SpeculationConfig,
    TargetConfig,
    config_from_dict,
)
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.factory import build_engine
from pilotfish.messages import Event
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc, types_pb2
from target_service.server import start_target
from tests.support.threaded_engine import ThreadedEngine

K = 4
CONFIG = Config(
    emulation=EmulationConfig(profile="a100-70b", acceptance=0.8),
    target=TargetConfig(port=0),
    draft=DraftConfig(port=0),
)


@contextlib.asynccontextmanager
async def orchestrator(
    mode: str, config: Config = CONFIG, **addresses: tuple[str, ...]
) -> AsyncIterator[OrchestratorServer]:
    speculation = SpeculationConfig(
        mode="on", num_speculative_tokens=K, draft_ahead=mode, draft_ahead_tokens=48, draft_deadline_ms=5000
    )
    section = OrchestratorConfig(port=0, speculation=speculation, **addresses)
    server = await OrchestratorServer.start(dataclasses.replace(config, orchestrator=section))
    try:
        assert await server.wait_ready(10)
        await server.service.drafts.connected(10)
        yield server
    finally:
        await server.drain_and_stop(0)


@pytest.fixture
async def draft_engine() -> EmulatedEngine:
    return start_emulated_engine(CONFIG, "draft")


@pytest.fixture
async def addresses(draft_engine: EmulatedEngine) -> AsyncIterator[dict[str, tuple[str, ...]]]:
    target = await start_target(CONFIG)
    draft = await start_draft(CONFIG, engine=draft_engine)
    yield {"target_addresses": (target.address,), "draft_addresses": (draft.address,)}
    await draft.drain_and_stop(0)
    await target.drain_and_stop(0)


async def answer(server: OrchestratorServer, **options) -> tuple[list[int], pb.Summary]:
    request = pb.GenerateRequest(text="a small fish", max_tokens=60, seed=5, ignore_eos=True, **options)
    token_ids: list[int] = []
    summary = pb.Summary()
    async with grpc.aio.insecure_channel(server.address) as channel:
        async for response in inference_pb2_grpc.InferenceStub(channel).Generate(request):
            token_ids.extend(response.chunk.token_ids)
            if response.HasField("summary"):
                summary = response.summary
    return token_ids, summary


MODES = {
    "greedy": {"temperature": 0.0},
    "coupled": {"temperature": 1.0},
    "rejection": {
        "temperature": 1.0,
        "speculation": pb.SpeculationOptions(acceptance=types_pb2.ACCEPTANCE_MODE_REJECTION),
    },
}


async def test_the_same_text_most_drafts_in_time_and_nothing_left(addresses, draft_engine) -> None:
    async with orchestrator("off", **addresses) as server:
        expected = {name: (await answer(server, **options))[0] for name, options in MODES.items()}
        assert server.service.ahead.counters.num_prepared_tokens == 0
    async with orchestrator("on", **addresses) as server:
        counters, num_rounds = server.service.ahead.counters, 0
        for name, options in MODES.items():
            token_ids, summary = await answer(server, **options)
            assert token_ids == expected[name]
            num_rounds += summary.speculation.num_rounds
        # A busy machine may be late with some.
        assert counters.num_hits > 0.3 * num_rounds
        assert counters.num_wasted_tokens < counters.num_prepared_tokens
        assert counters.hidden_s > 0
        await leave_in_the_middle(server)
        while draft_engine.num_sequences:  # noqa: ASYNC110  # it has no event that a test could see
            await asyncio.sleep(0.001)
    assert draft_engine.core.drafting.num_sequences_held == 0


async def leave_in_the_middle(server: OrchestratorServer) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        request = pb.GenerateRequest(text="a small fish", max_tokens=2000, ignore_eos=True)
        call = inference_pb2_grpc.InferenceStub(channel).Generate(request)
        for _ in range(5):
            await call.read()
        call.cancel()


def make_slower(target: EngineCore, draft: EngineCore) -> None:
    """A step of the target takes as long as the drafter has something to do, as a much larger model's would."""
    is_idle = threading.Event()
    draft_step, target_step = draft.step, target.step

    def step_of_draft() -> list[Event]:
        is_idle.clear()
        events = draft_step()
        if not draft.has_work:
            is_idle.set()
        return events

    def step_of_target() -> list[Event]:
        is_idle.wait(1.0)
        return target_step()

    draft.step, target.step = step_of_draft, step_of_target  # type: ignore[method-assign]


@pytest.fixture
async def real_addresses(target_folder: Path, tmp_path: Path) -> AsyncIterator[tuple[Config, dict]]:
    """Real engines of a tiny model on threads: the drafter is the target itself, so that it foresees most."""
    threads = torch.get_num_threads()
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}
    service = {"model": str(target_folder), "port": 0, "engine": engine}
    config = config_from_dict(
        {"target": service, "draft": {"proposer": "model", **service}, "cache_dir": str(tmp_path)}
    )
    draft_core, target_core = build_engine(config, "draft"), build_engine(config, "target")
    make_slower(target_core, draft_core)
    target = await start_target(config, engine=ThreadedEngine(target_core))
    draft = await start_draft(config, engine=ThreadedEngine(draft_core))
    yield config, {"target_addresses": (target.address,), "draft_addresses": (draft.address,)}
    await draft.drain_and_stop(0)
    await target.drain_and_stop(0)
    torch.set_num_threads(threads)


async def test_a_real_model_drafts_ahead(real_addresses) -> None:
    config, addresses = real_addresses
    texts: dict[str, list[list[int]]] = {}
    for mode in ("off", "on"):
        async with orchestrator(mode, config, **addresses) as server:
            texts[mode] = [(await answer(server, **MODES[name]))[0] for name in ("greedy", "coupled")]
            counters = server.service.ahead.counters
    assert texts["on"] == texts["off"]
    # A push may come only while it is asked for.
    assert counters.num_hits + counters.num_late_hits > 5
