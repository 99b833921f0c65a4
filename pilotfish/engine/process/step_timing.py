"""Runs single steps of an engine core, of a chosen shape, and takes their time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pilotfish.engine.process.client import Core
from pilotfish.errors import ConfigError
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Propose, SequenceError, Verdict, Verify
from pilotfish.types import SamplingParams

_SAMPLING = SamplingParams(temperature=0, max_tokens=1 << 20)
_DRAFT_TOKENS = 4
"""Steps of a proposal that is timed."""


class StepTimes:
    """Runs single steps of a core and takes their time."""

    def __init__(self, core: Core, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._ids = itertools.count(1)
        self._lengths: dict[int, int] = {}

    @contextmanager
    def opened(self, num_sequences: int, context_tokens: int) -> Iterator[list[int]]:
        """That many idle sequences, whose context is in the KV cache, for as long as the block lasts."""
        sequence_ids = [self.open(context_tokens) for _ in range(num_sequences)]
        self.settle()
        yield sequence_ids
        for sequence_id in sequence_ids:
            self.close(sequence_id)

    def open(self, num_tokens: int, *, is_shared: bool = False) -> int:
        """A sequence whose prompt no other one shares, or all do. Raises ConfigError when the engine refuses it."""
        sequence_id = next(self._ids)
        vocab_size, seed = self._core.model.vocab_size, 0 if is_shared else sequence_id
        prompt = tuple((seed * 7919 + 31 * place) % (vocab_size - 1) + 1 for place in range(num_tokens))
        self._core.submit(OpenSequence(sequence_id, prompt, _SAMPLING))
        self._lengths[sequence_id] = num_tokens
        return sequence_id

    def close(self, sequence_id: int) -> None:
        self._core.submit(CloseSequence(sequence_id))
        del self._lengths[sequence_id]

    def settle(self) -> None:
        """Run until nothing is left to do."""
        while self._core.has_work:
            self._step()

    def verify_s(self, sequences: Sequence[int], rows_each: int) -> float:
        """Seconds of the step that verifies rows_each - 1 drafts of each sequence; 1 row is a decode."""
        for sequence_id in sequences:
            base = self._lengths[sequence_id]
            if rows_each == 1:
                self._core.submit(Decode(sequence_id, base, 1))
            else:
                self._core.submit(Verify(sequence_id, base, (1,) * (rows_each - 1)))
        elapsed_s = self._step()
        self.settle()
        return elapsed_s

    def draft_step_s(self, sequences: Sequence[int]) -> float:
        """Seconds of the steps of a proposal for all sequences, on average."""
        for sequence_id in sequences:
            self._lengths[sequence_id] += 1
            self._core.submit(Propose(sequence_id, self._lengths[sequence_id], (1,), _DRAFT_TOKENS))
        elapsed_s = sum(self._step() for _ in range(_DRAFT_TOKENS)) / _DRAFT_TOKENS
        self.settle()
        return elapsed_s

    def prefill_s(self, num_tokens: int) -> float:
        """Seconds of the step that computes a prompt's first num_tokens tokens."""
        sequence_id = self.open(num_tokens + 1)
        elapsed_s = self._step()
        self.settle()
        self.close(sequence_id)
        return elapsed_s

    def _step(self) -> float:
        start_s = self._clock()
        events = self._core.step()
        elapsed_s = self._clock() - start_s
        for event in events:
            if isinstance(event, Verdict):
                self._lengths[event.sequence_id] += len(event.token_ids)
            elif isinstance(event, SequenceError):
                raise ConfigError(f"the engine cannot be measured in this shape: {event.message}")
        return elapsed_s
