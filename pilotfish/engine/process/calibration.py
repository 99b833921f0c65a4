"""Measures what an idle engine's steps take, as the table to begin with."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from pilotfish.engine.batching.step_costs import ROWS, StepCosts
from pilotfish.engine.process.client import Core
from pilotfish.engine.process.step_timing import StepTimes
from pilotfish.errors import ConfigError

BUDGET_S = 2.0
"""What is not measured by then is learned from the steps."""
_CONTEXT_TOKENS = 64
"""Of each sequence; they share a prompt, so that its prefill is computed once."""
_SAMPLES = 3
"""Of each size; their median counts."""


def calibrate(core: Core, max_batch_tokens: int, *, clock: Callable[[], float] = time.perf_counter) -> StepCosts:
    """Times steps of ever more rows until the budget is spent; leaves no sequence behind."""
    timer, deadline_s = StepTimes(core, clock), clock() + BUDGET_S
    rows: list[int] = []
    times_ns: list[float] = []
    sequences: list[int] = []
    try:
        for num_sequences, rows_each in _shapes(core, max_batch_tokens):
            while len(sequences) < num_sequences:
                sequences.append(timer.open(min(_CONTEXT_TOKENS, core.model.max_context_tokens // 2), is_shared=True))
                timer.settle()
            step_s = statistics.median(timer.verify_s(sequences[:num_sequences], rows_each) for _ in range(_SAMPLES))
            rows.append(num_sequences * rows_each)
            # More rows never take less: where a measurement says so, it is noise.
            times_ns.append(max(1e9 * step_s, *times_ns[-1:], 0.0))
            if clock() > deadline_s:
                break
    except ConfigError:
        pass  # the KV cache is full: larger steps are learned
    finally:
        for sequence_id in sequences:
            timer.close(sequence_id)
        timer.settle()
    return StepCosts(rows, times_ns)


def _shapes(core: Core, max_batch_tokens: int) -> Iterator[tuple[int, int]]:
    """(sequences, rows of each) for each cell of the table that the engine can compute."""
    longest = core.limits.max_draft_tokens + 1
    for size in itertools.takewhile(lambda rows: rows <= max_batch_tokens, ROWS):
        num_sequences = next(count for count in range(-(-size // longest), size + 1) if size % count == 0)
        if num_sequences > core.limits.max_sequences:
            return
        yield num_sequences, size // num_sequences
