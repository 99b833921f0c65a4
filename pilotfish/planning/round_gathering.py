"""A target's waiting for sequences that come back soon, in simulated rounds: decided by the engine's own code."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.engine.gathering import StepGathering
from pilotfish.messages import Verdict, Verify
from pilotfish.types import LoadReport

_NS = 1e9
"""In a second."""
_NOBODY = -1
"""Of the sequences."""


class RoundGathering:
    """Tells `pilotfish.engine.gathering` what a target takes and gives. Sequences are numbers; times in seconds."""

    def __init__(self, num_draft_tokens: int, expected_tokens: float, max_batch_tokens: int) -> None:
        """expected_tokens: that a verification of num_draft_tokens yields. max_batch_tokens: rows of a step at most."""
        self._gathering = StepGathering(max_batch_tokens)
        self._draft = (0,) * num_draft_tokens
        self._expected_tokens = expected_tokens
        self._num_owed = 0.0
        """Of the expected tokens, the part that was not given yet: verdicts hold whole ones."""

    def took(self, numbers: Sequence[int], now_s: float, *, is_seen: bool) -> None:
        """Drafts of these have arrived: just now, or at some time in the step before. See StepGathering.took."""
        commands = [Verify(sequence_id=number, base_length=1, draft_token_ids=self._draft) for number in numbers]
        self._gathering.took(commands, round(now_s * _NS), is_seen=is_seen)

    def give_up(self, now_s: float) -> None:
        """A wait has ended without an arrival."""
        self._gathering.give_up(round(now_s * _NS))

    def gave(self, numbers: Sequence[int], step_s: float, now_s: float) -> None:
        """A step that verified these has ended."""
        num_rows = len(numbers) * (len(self._draft) + 1)
        load = LoadReport(num_step_tokens=num_rows, step_time_ns=round(step_s * _NS))
        self._gathering.gave([self._verdict(number) for number in numbers], load, round(now_s * _NS))

    def wait_s(self, now_s: float) -> float:
        """How long the next step should wait for a draft to arrive; 0: it begins now."""
        return self._gathering.wait_ns(round(now_s * _NS)) / _NS

    def knows(self, num_sequences: int, step_s: float) -> None:
        """What a step of so many takes, from a time when the load was smaller."""
        num_rows = num_sequences * (len(self._draft) + 1)
        load = LoadReport(num_step_tokens=num_rows, step_time_ns=round(step_s * _NS))
        for _ in range(2):  # a first step of a size is not believed
            self._gathering.gave([Verdict(_NOBODY, 1, 0, 0, (0,))], load, 0)

    def max_sequences(self, now_s: float) -> int | None:
        """That the step which begins now should verify; None: all that are ready."""
        max_rows = self._gathering.max_rows(round(now_s * _NS))
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
