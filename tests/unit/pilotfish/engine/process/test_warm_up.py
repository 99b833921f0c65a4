"""Warming up leaves nothing behind."""

from collections.abc import Callable
from typing import Any

import pytest

from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.warm_up import warm_up
from pilotfish.errors import InternalError
from pilotfish.messages import Opened, OpenSequence
from pilotfish.step_table import StepTable
from pilotfish.types import LoadReport, SamplingParams


def test_nothing_is_left_and_nothing_is_found(make_core: Callable[..., EngineCore]) -> None:
    core = make_core()
    before = core.load()
    warm_up(core)
    load = core.load()
    assert not core.has_work
    assert (load.num_kv_blocks_used, load.num_sequences_running, load.num_sequences_waiting) == (0, 0, 0)
    assert isinstance(before, LoadReport)
    core.submit(OpenSequence(1, tuple(range(1, 40)), SamplingParams()))
    (opened,) = core.step()
    assert isinstance(opened, Opened)
    assert opened.num_cached_tokens == 0, "the warm-up's prompt must not stay in the prefix cache"


def test_only_an_engine_that_begins_with_costs_tells_them(make_core: Callable[..., EngineCore]) -> None:
    core = make_core()
    warm_up(core)
    assert core.load().step_table == StepTable()
    core.begin_with(StepCosts((1, 8), (8e6, 9e6)))
    assert core.load().step_table == StepTable((1, 8), (8_000_000, 9_000_000))


def test_an_engine_that_cannot_compute_does_not_start(
    make_core: Callable[..., EngineCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("pilotfish.engine.core.engine_core.draft_among", failing)
    with pytest.raises(InternalError, match="first steps"):
        warm_up(make_core())
