"""What rounds take on this machine: the target's steps by rows, the drafter's time by load and draft length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pilotfish.emulation.cost_measurement import ShapeTimes
from pilotfish.engine.core.engine import Engine
from pilotfish.examine.rehearsal import DraftWatch
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Verdict
from pilotfish.step_table import StepTable, interpolate
from pilotfish.types import SamplingParams

LOADS = (1, 4, 8, 16, 64)
"""Requests that decode at once."""
_CONTEXT_TOKENS = 64
"""Context of each sequence, as where a target measures its own steps."""
_SAMPLES = 5
_GREEDY = SamplingParams(temperature=0, max_tokens=1 << 20)
_IDS = 1 << 30
"""Ids of the sequences that are timed begin here."""


@dataclass(frozen=True)
class RoundCosts:
    """Of one drafter beside its target, or apart from it."""

    steps: StepTable
    """The target's."""
    loads: tuple[int, ...]
    first_s: tuple[float, ...]
    """Time of the drafter's first token, for each load."""
    further_s: tuple[float, ...]
    """Time of each further token."""
    max_rows: int
    """Rows of a step of the target."""
    max_nodes: int = 0
    """Draft tokens of a tree, at most (engine.max_draft_tokens)."""
    is_remote: bool = False
    """Whether drafts are asked for over a network."""
    grows: bool = True
    """Whether the drafter takes a pass for each token, and stops where another would not pay; a lookup looks once."""

    def passes_s(self, load: int, rows: Sequence[int]) -> float:
        """Time of the drafter's first pass for so many sequences, and of further ones of so many rows each."""
        further_s = sum(interpolate(self.loads, self.further_s, each) for each in rows)
        return interpolate(self.loads, self.first_s, load) + further_s


def measure_in_target(
    core: Engine, watch: DraftWatch, num_draft_tokens: int, steps: StepTable, max_rows: int, *, grows: bool = True
) -> RoundCosts:
    """Costs of the drafter that is watched in an idle target. steps, grows: see RoundCosts."""
    loads = _loads(core)
    one = [_drafting_s(core, watch, load, 1) for load in loads]
    length = min(num_draft_tokens, watch.max_draft_tokens or num_draft_tokens)
    all_s = [_drafting_s(core, watch, load, length) for load in loads]
    further_s = [max(0.0, (most - first) / max(1, length - 1)) for first, most in zip(one, all_s, strict=True)]
    max_nodes = core.limits.max_draft_tokens
    return RoundCosts(steps, loads, tuple(one), tuple(further_s), max_rows, max_nodes, grows=grows)


def measure_draft_model(
    core: Engine, steps: StepTable, max_rows: int, clock: Callable[[], float] = time.perf_counter
) -> RoundCosts:
    """Costs of the draft model of an idle engine, in a draft service of its own."""
    timer, loads = ShapeTimes(core, clock), _loads(core)
    times_s = []
    for load in loads:
        with timer.opened(load, _context_tokens(core)) as sequences:
            times_s.append(_least(partial(timer.draft_step_s, sequences)))
    return RoundCosts(steps, loads, tuple(times_s), tuple(times_s), max_rows, is_remote=True)


def _drafting_s(core: Engine, watch: DraftWatch, load: int, num_draft_tokens: int) -> float:
    """The least time of some rounds: other processes only make them longer."""
    length = _context_tokens(core)
    prompt = tuple((31 * place) % (core.model.vocab_size - 1) + 1 for place in range(length))
    ids = range(_IDS, _IDS + load)
    for sequence_id in ids:
        core.submit(OpenSequence(sequence_id, prompt, _GREEDY))
        # One more than the rounds that count: sequences that begin later are in step with the others by then.
        num_tokens = _SAMPLES + num_draft_tokens + load + 1
        core.submit(Decode(sequence_id, length, num_tokens, num_draft_tokens=num_draft_tokens))
    times_s: list[float] = []
    while core.has_work and len(times_s) < _SAMPLES:
        events = core.step()
        if sum(isinstance(event, Verdict) for event in events) == load:
            times_s.append(watch.took_s)
    for sequence_id in ids:
        core.submit(CloseSequence(sequence_id))
    while core.has_work:
        core.step()
    return min(times_s, default=0.0)


def _loads(core: Engine) -> tuple[int, ...]:
    return tuple(load for load in LOADS if load <= core.limits.max_sequences)


def _context_tokens(core: Engine) -> int:
    return min(_CONTEXT_TOKENS, core.model.max_context_tokens // 2)


def _least(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(_SAMPLES))
