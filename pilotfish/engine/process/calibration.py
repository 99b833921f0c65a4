"""Measures what an idle engine's steps take, as the table to begin with."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from pilotfish.engine.batching.step_costs import ROWS, StepCosts
from pilotfish.engine.core.engine import Engine
from pilotfish.errors import ConfigError
from pilotfish.messages import CloseSequence, Decode, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.types import SamplingParams

BUDGET_S = 2.0
"""Time for measuring; what is not measured by then is learned from the steps."""
_CONTEXT_TOKENS = 64
"""Context of each sequence; they share a prompt, so that its prefill is computed once."""
_SAMPLING = SamplingParams(temperature=0, max_tokens=1 << 20)
_ROUNDS = 4


class StepTimes:
    """Runs single steps of a core and takes their time."""

    def __init__(self, core: Engine, clock: Callable[[], float]) -> None:
        self.core = core
        self._clock = clock
        self._ids = itertools.count(1)
        self.lengths: dict[int, int] = {}
        """Tokens of each sequence."""

    def open(self, num_tokens: int, *, is_shared: bool = False) -> int:
        """A sequence whose prompt no other one shares, or all do. Raises ConfigError when the engine refuses it."""
        sequence_id = next(self._ids)
        vocab_size, seed = self.core.model.vocab_size, 0 if is_shared else sequence_id
        prompt = tuple((seed * 7919 + 31 * place) % (vocab_size - 1) + 1 for place in range(num_tokens))
        self.core.submit(OpenSequence(sequence_id, prompt, _SAMPLING))
        self.lengths[sequence_id] = num_tokens
        return sequence_id

    def close(self, sequence_id: int) -> None:
        self.core.submit(CloseSequence(sequence_id))
        del self.lengths[sequence_id]

    def settle(self) -> None:
        """Run until nothing is left to do."""
        while self.core.has_work:
            self.step_s()

    def verify_s(self, sequences: Sequence[int], rows_each: int) -> float:
        """Seconds of the step that verifies rows_each - 1 drafts of each sequence; 1 row is a decode."""
        for sequence_id in sequences:
            base = self.lengths[sequence_id]
            if rows_each == 1:
                self.core.submit(Decode(sequence_id, base, 1))
            else:
                self.core.submit(Verify(sequence_id, base, (1,) * (rows_each - 1)))
        elapsed_s = self.step_s()
        self.settle()
        return elapsed_s

    def step_s(self) -> float:
        """Seconds of the next step. Raises ConfigError when the engine refuses something, or has no room for it."""
        num_preemptions = self.core.num_preemptions
        start_s = self._clock()
        events = self.core.step()
        elapsed_s = self._clock() - start_s
        if self.core.num_preemptions > num_preemptions:
            raise ConfigError("the engine cannot be measured in this shape: raise engine.kv_cache_tokens")
        for event in events:
            if isinstance(event, Verdict):
                self.lengths[event.sequence_id] += len(event.token_ids)
            elif isinstance(event, SequenceError):
                raise ConfigError(f"the engine cannot be measured in this shape: {event.message}")
        return elapsed_s


def calibrate(core: Engine, max_batch_tokens: int, *, clock: Callable[[], float] = time.perf_counter) -> StepCosts:
    """Times steps of ever more rows, several times over, until the budget is spent; leaves no sequence behind.

    Other processes make steps longer, never shorter, for a while: a size's samples are a round apart, and the least of
    them counts, and of those of more rows.
    """
    least_ns: dict[int, float] = {}
    for _ in range(_ROUNDS):
        timer, sequences, deadline_s = StepTimes(core, clock), list[int](), clock() + BUDGET_S / _ROUNDS
        try:
            for num_sequences, rows_each in _shapes(core, max_batch_tokens):
                while len(sequences) < num_sequences:
                    num_tokens = min(_CONTEXT_TOKENS, core.model.max_context_tokens // 2)
                    sequences.append(timer.open(num_tokens, is_shared=True))
                    timer.settle()
                step_ns = 1e9 * timer.verify_s(sequences[:num_sequences], rows_each)
                num_rows = num_sequences * rows_each
                least_ns[num_rows] = min(step_ns, least_ns.get(num_rows, step_ns))
                if clock() > deadline_s:
                    break
        except ConfigError:
            pass  # the KV cache is full: larger steps are learned
        for sequence_id in sequences:
            timer.close(sequence_id)
        while core.has_work:
            core.step()
    times_ns = list(itertools.accumulate(reversed(least_ns.values()), min))[::-1]
    return StepCosts(list(least_ns), times_ns)


def _shapes(core: Engine, max_batch_tokens: int) -> Iterator[tuple[int, int]]:
    """(sequences, rows of each) for each cell of the table that the engine can compute."""
    longest = core.limits.max_draft_tokens + 1
    for size in itertools.takewhile(lambda rows: rows <= max_batch_tokens, ROWS):
        num_sequences = next(count for count in range(-(-size // longest), size + 1) if size % count == 0)
        if num_sequences > core.limits.max_sequences:
            return
        yield num_sequences, size // num_sequences
