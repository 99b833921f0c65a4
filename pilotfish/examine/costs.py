"""What rounds take on this machine: the target's steps by rows, the drafter's time by load and draft length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from pilotfish.emulation.cost_measurement import ShapeTimes
from pilotfish.emulation.profiles.step_cost import MeasuredCost
from pilotfish.engine.core.engine import Engine
from pilotfish.examine.rehearsal import DraftWatch
from pilotfish.messages import Decode
from pilotfish.planning.planner import ROUND_TRIP_S
from pilotfish.step_table import StepTable, interpolate

LOADS = (1, 4, 8, 16, 64)
"""Requests that decode at once."""
_CONTEXT_TOKENS = 64
"""Context of each sequence, as where a target measures its own steps."""
_SAMPLES = 5


class DrafterPlace(Enum):
    """Where a drafter drafts."""

    TARGET = auto()
    DRAFT_SERVICE = auto()
    EITHER = auto()
    """A head."""


@dataclass(frozen=True)
class MeasuredRoundCosts:
    """What rounds take with one drafter, beside its target or apart from it."""

    steps: StepTable
    """The target's, as its own decisions know them: by rows."""
    loads: tuple[int, ...]
    first_s: tuple[float, ...]
    """Time of the drafter's first token, for each load."""
    further_s: tuple[float, ...]
    """Time of each further token."""
    max_rows: int
    """Rows of a step of the target."""
    max_nodes: int = 0
    """Draft tokens of a tree, at most (engine.max_draft_tokens)."""
    place: DrafterPlace = DrafterPlace.TARGET
    round_trip_s: float = ROUND_TRIP_S
    """Time between the orchestrator and a draft service, there and back, with all that is done on the way."""
    shares_processors: bool = False
    """Whether a draft service has the target's processors, so that neither computes while the other does."""
    grows: bool = True
    """Whether the drafter takes a pass for each token, and stops where another would not pay; a lookup looks once."""
    verification: MeasuredCost | None = None
    """The target's steps as they are: by sequences and rows; None: as `steps` says."""

    def step_s(self, load: int, num_rows: int) -> float:
        """Time of a step of the target, of so many sequences."""
        if self.verification is None:
            return self.steps.step_s(num_rows)
        return self.verification.step_s(load, num_rows)

    @property
    def passes(self) -> StepTable:
        """The drafter's first passes, by sequences."""
        return StepTable(self.loads, tuple(round(1e9 * seconds) for seconds in self.first_s))

    def passes_s(self, load: int, rows: Sequence[int]) -> float:
        """Time of the drafter's first pass for so many sequences, and of further ones of so many rows each."""
        further_s = sum(interpolate(self.loads, self.further_s, each) for each in rows)
        return interpolate(self.loads, self.first_s, load) + further_s


def measure_in_target(
    core: Engine, watch: DraftWatch, num_draft_tokens: int, steps: StepTable, max_rows: int, *, grows: bool = True
) -> MeasuredRoundCosts:
    """Costs of the drafter that is watched in an idle target. steps, grows: see MeasuredRoundCosts."""
    timer, loads = ShapeTimes(core, time.perf_counter), loads_of(core)
    one = [_drafting_s(timer, watch, load, 1) for load in loads]
    length = min(num_draft_tokens, watch.max_draft_tokens or num_draft_tokens)
    all_s = [_drafting_s(timer, watch, load, length) for load in loads]
    further_s = [max(0.0, (most - first) / max(1, length - 1)) for first, most in zip(one, all_s, strict=True)]
    max_nodes = core.limits.max_draft_tokens
    return MeasuredRoundCosts(steps, loads, tuple(one), tuple(further_s), max_rows, max_nodes, grows=grows)


def measure_draft_model(
    core: Engine, steps: StepTable, max_rows: int, clock: Callable[[], float] = time.perf_counter
) -> MeasuredRoundCosts:
    """Costs of the draft model of an idle engine, in a draft service of its own."""
    timer, loads = ShapeTimes(core, clock), loads_of(core)
    with timer.opened(loads[-1], context_tokens_of(core)) as sequences:
        times_s = [_least(partial(timer.draft_step_s, sequences[:load])) for load in loads]
    return MeasuredRoundCosts(steps, loads, tuple(times_s), tuple(times_s), max_rows, place=DrafterPlace.DRAFT_SERVICE)


def _drafting_s(timer: ShapeTimes, watch: DraftWatch, load: int, num_draft_tokens: int) -> float:
    """The least time of some rounds: other processes only make them longer."""
    # A token more than whole blocks: it is all that is computed of a prompt that another sequence has.
    with timer.opened(load, context_tokens_of(timer.core) + 1, is_shared=True) as sequences:
        for sequence_id in sequences:
            num_tokens = _SAMPLES + num_draft_tokens + 1
            timer.core.submit(Decode(sequence_id, timer.lengths[sequence_id], num_tokens, num_draft_tokens))
        times_s = list[float]()
        for _ in range(_SAMPLES):
            timer.step_s()
            times_s.append(watch.took_s)
    return min(times_s)


def loads_of(core: Engine) -> tuple[int, ...]:
    """The part of LOADS that its replica takes."""
    return tuple(load for load in LOADS if load <= core.limits.max_sequences)


def context_tokens_of(core: Engine) -> int:
    """Context of each sequence that is timed."""
    return min(_CONTEXT_TOKENS, core.model.max_context_tokens // 2)


def _least(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(_SAMPLES))
