"""Drafting ahead through the whole stack: real gRPC and sessions, engines that take a 70B's time."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from pilotfish.config import (
    Config,
    EmulationConfig,
    OrchestratorConfig,
    SpeculationConfig,
    TargetConfig,
    config_from_dict,
)
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.factory import build_engine
from pilotfish.messages import Command, Event, Predrafted, Verdict
from pilotfish.rpc.v1 import types_pb2
from pilotfish.rpc.v1.inference_pb2 import SPECULATION_MODE_OFF
from tests.support.stack import Answer, Stack, running_stack
from tests.support.threaded_engine import ThreadedEngine

CONFIG = Config(
    # Five times as slow: what is drafted ahead has some 20 ms left, and a busy machine takes a part of them.
    emulation=EmulationConfig(profile="a100-70b", acceptance=0.8, time_scale=5),
    target=TargetConfig(model="nobody/has-this"),
)


def ahead(mode: str, config: Config = CONFIG) -> Config:
    """With drafting ahead turned on or off."""
    speculation = SpeculationConfig(
        mode="on", num_speculative_tokens=4, draft_ahead=mode, draft_ahead_tokens=48, draft_deadline_ms=5000
    )
    return dataclasses.replace(config, orchestrator=OrchestratorConfig(speculation=speculation))


MODES = {
    "greedy": {"temperature": 0.0},
    "coupled": {"temperature": 1.0},
    "rejection": {"temperature": 1.0, "speculation": {"acceptance": types_pb2.ACCEPTANCE_MODE_REJECTION}},
}


async def test_the_same_text_most_drafts_in_time_and_nothing_left() -> None:
    async with running_stack(ahead("off")) as stack:
        expected = {name: await answer(stack, name) for name in MODES}
        assert stack.orchestrator.service.sessions.predraft.counters.num_prepared_tokens == 0
    engine, target = start_emulated_engine(CONFIG, "draft"), start_emulated_engine(CONFIG, "target")
    going_on = count_going_on(target.core)
    async with running_stack(ahead("on"), target_engine=target, draft_engine=engine) as stack:
        counters, num_rounds = stack.orchestrator.service.sessions.predraft.counters, 0
        for name in MODES:
            answered = await answer(stack, name)
            assert answered.token_ids == expected[name].token_ids
            num_rounds += answered.speculation.num_rounds
        # A busy machine may be late with some.
        assert counters.num_hits > 0.3 * num_rounds
        assert len(going_on) > 0.2 * num_rounds
        assert 0 < counters.num_gone_on <= len(going_on)
        assert counters.num_wasted_tokens < counters.num_prepared_tokens
        assert counters.hidden_s > 0
        async with stack.call(max_tokens=2000) as call:
            for _ in range(5):
                await call.read()
            call.cancel()
        while engine.num_sequences:  # noqa: ASYNC110  # it has no event that a test could see
            await asyncio.sleep(0.001)
    assert not engine.core.has_work


async def answer(stack: Stack, name: str) -> Answer:
    return await stack.ask(max_tokens=60, seed=5, **MODES[name])


def count_going_on(core: Engine) -> list[Verdict]:
    """Grows by the verdicts after which the target went on by itself."""
    going_on: list[Verdict] = []
    go_on = core.go_on

    def counted(events: Sequence[Event]) -> list[Event]:
        told = go_on(events)
        going_on.extend(event for event in told if isinstance(event, Verdict) and event.num_next_draft_tokens)
        return told

    core.go_on = counted  # type: ignore[method-assign]
    return going_on


def slower(target: EngineCore, draft: EngineCore) -> ThreadedEngine:
    """The target's engine: a step takes as long as the drafter has something to do, and until that has come, as a much
    larger model's would."""
    is_idle, has_come = threading.Event(), threading.Event()
    is_idle.set()
    has_drafted = False
    draft_step, target_step = draft.step, target.step

    def step_of_draft() -> list[Event]:
        nonlocal has_drafted
        is_idle.clear()
        has_drafted = True
        events = draft_step()
        if not draft.has_work:
            is_idle.set()
        return events

    def step_of_target() -> list[Event]:
        nonlocal has_drafted
        is_idle.wait(1.0)
        if has_drafted:
            has_come.wait(0.3)
        has_come.clear()
        has_drafted = False
        return target_step()

    draft.step, target.step = step_of_draft, step_of_target  # type: ignore[method-assign]
    engine = ThreadedEngine(target)
    send = engine.send

    def heard(commands: Sequence[Command]) -> None:
        send(commands)
        if any(isinstance(command, Predrafted) for command in commands):
            has_come.set()

    engine.send = heard  # type: ignore[method-assign]
    return engine


@pytest.fixture
def config(target_folder: Path, tmp_path: Path) -> Config:
    """Of a tiny model, whose drafter is the target itself, so that it foresees most."""
    service = {"model": str(target_folder), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}}
    return config_from_dict({"target": service, "draft": {"proposer": "model", **service}, "cache_dir": str(tmp_path)})


@pytest.fixture
def head_config(config: Config, head_folder: Path) -> Config:
    """Of the same target, with a head that knows nothing of it, and of which it foresees little."""
    draft = dataclasses.replace(config.draft, proposer="eagle3", head=str(head_folder))
    target = dataclasses.replace(config.target, feature_layers=(0, 1, 1))
    return dataclasses.replace(config, draft=draft, target=target)


@pytest.mark.parametrize("drafter", ["config", "head_config"])
async def test_a_real_drafter_drafts_ahead(request: pytest.FixtureRequest, drafter: str) -> None:
    config: Config = request.getfixturevalue(drafter)
    draft, target = build_engine(config, "draft"), build_engine(config, "target")
    going_on = count_going_on(target)
    engines = {"target_engine": slower(target, draft), "draft_engine": ThreadedEngine(draft)}
    async with running_stack(ahead("on", config), **engines) as stack:
        off = {"max_tokens": 60, "seed": 5, "speculation": {"mode": SPECULATION_MODE_OFF}}
        # First: once it has drafted, the drafter may be left with work, for which the target's steps wait.
        plain = {name: await stack.ask(**off, **MODES[name]) for name in ("greedy", "coupled")}
        for name, expected in plain.items():
            assert (await answer(stack, name)).token_ids == expected.token_ids
        counters = stack.orchestrator.service.sessions.predraft.counters
    assert going_on
    # A push may come only while it is asked for.
    assert counters.num_hits + counters.num_late_hits > 5
