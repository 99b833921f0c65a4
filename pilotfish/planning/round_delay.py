"""A target's waiting for sequences that come back soon, in simulated rounds: decided by the engine's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import Verdict, Verify

_NS = 1e9
"""In a second."""


class RoundDelay:
    """Tells a BatchingDelay what a target takes and gives. Sequences are numbers; times in seconds."""

    def __init__(
        self, step_s: Callable[[int, int], float], num_draft_tokens: int, expected_tokens: float, max_batch_tokens: int
    ) -> None:
        """step_s: see StepCosts.sampled. expected_tokens: that a verification of num_draft_tokens yields.
        max_batch_tokens: rows of a step at most."""
        self._costs = StepCosts.sampled(step_s, max_batch_tokens)
        self._delay = BatchingDelay(self._costs, max_batch_tokens)
        self._draft = (0,) * num_draft_tokens
        self._expected_tokens = expected_tokens
        self._num_owed = 0.0
        """Of the expected tokens, the part that was not given yet: verdicts hold whole ones."""

    def took(self, number: int, now_s: float) -> None:
        """A draft of this one has arrived."""
        command = Verify(sequence_id=number, base_length=1, draft_token_ids=self._draft)
        self._delay.took((command,), round(now_s * _NS))

    def gave(self, numbers: Sequence[int], step_s: float, now_s: float) -> None:
        """A step that verified these has ended."""
        self._costs.add(len(numbers) * (len(self._draft) + 1), 0, step_s * _NS)
        self._delay.gave([self._verdict(number) for number in numbers], round(now_s * _NS))

    def wait_s(self, now_s: float) -> float:
        """How long the next step should wait for a draft to arrive; 0: it begins now."""
        return self._delay.wait_ns(round(now_s * _NS)) / _NS

    def max_sequences(self, now_s: float) -> int | None:
        """That the step which begins now should verify; None: all that are ready."""
        max_rows = self._delay.max_rows(round(now_s * _NS))
        return None if max_rows is None else max(1, max_rows // (len(self._draft) + 1))

    def _verdict(self, number: int) -> Verdict:
        self._num_owed += self._expected_tokens
        num_tokens = int(self._num_owed)
        self._num_owed -= num_tokens
        return Verdict(
            sequence_id=number,
            base_length=1,
            num_draft_tokens=len(self._draft),
            num_accepted_tokens=max(0, num_tokens - 1),
            token_ids=(0,) * num_tokens,
        )
