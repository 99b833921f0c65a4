"""When a step waits a moment for sequences that come back soon.

A speculating sequence is away between its verdict and its next draft. A step that begins as soon as anything is
ready leaves those out, and from two sequences up they fall into groups that take turns: the weights are read once
for each group in every round. Waiting a moment instead keeps the sequences of a replica in step. It pays while
being away is shorter than reading the weights, and does not where many that decode plainly would wait for few.

Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pilotfish.engine.absence import Absence
from pilotfish.engine.step_curve import StepCurve
from pilotfish.messages import CloseSequence, Command, Decode, Event, SequenceError, Verdict, Verify
from pilotfish.types import LoadReport

_WEIGHT = 0.25
"""Of the latest value in a moving average."""
_FREE_ROWS = 1.1
"""A step that takes at most this many times as long as that of one row mostly reads the weights."""
_FIRST_GUESS = 0.25
"""Of reading the weights: how long a sequence is taken to be away before that is known."""


class StepGathering:
    """Told what goes in and out of a target's engine, it says how long the next step should wait."""

    def __init__(self, max_batch_tokens: int) -> None:
        """max_batch_tokens: rows of a step at most; a full one waits for nobody."""
        self._max_batch_tokens = max_batch_tokens
        self._absences: dict[int, Absence] = {}
        """Of the sequences that have had a draft verified."""
        self._away: dict[int, Absence] = {}
        """Of those that are away now."""
        self._drafting: dict[int, int] = {}
        """Rows of each sequence whose draft waits to be verified."""
        self._decoding: dict[int, int] = {}
        """Where each run of plain decoding ends, in tokens of its sequence."""
        self._round_rows = 2.0
        """Rows of a verification, on average."""
        self._round_tokens = 2.0
        """Output tokens of a verification, on average."""
        self._curve = StepCurve()
        self._worth_ns = 0.0
        """Being away for so long was worth waiting for, when that was last asked; 0: no longer than usual."""

    def took(self, commands: Iterable[Command], now_ns: int, *, is_seen: bool) -> None:
        """Commands have arrived: just now (is_seen), or at some time in the step before.

        Without any, a wait has ended.
        """
        for command in commands:
            sequence_id = command.sequence_id
            if isinstance(command, CloseSequence):
                self._forget(sequence_id)
            elif isinstance(command, Verify):
                self._return(sequence_id, now_ns, is_seen=is_seen)
                num_rows = self._drafting[sequence_id] = 1 + len(command.draft_token_ids)
                self._round_rows += _WEIGHT * (num_rows - self._round_rows)
            elif isinstance(command, Decode):
                self._return(sequence_id, now_ns, is_seen=is_seen)
                goal = command.base_length + command.num_tokens
                self._decoding[sequence_id] = max(goal, self._decoding.get(sequence_id, 0))
        self._note_late(now_ns)

    def gave(self, events: Iterable[Event], load: LoadReport, now_ns: int) -> None:
        """A step has ended with these events; the load tells what it took."""
        self._curve.add(load.num_step_tokens, load.step_time_ns)
        for event in events:
            if isinstance(event, SequenceError) or (isinstance(event, Verdict) and event.finish_reason is not None):
                self._forget(event.sequence_id)
            elif isinstance(event, Verdict):
                self._note_verdict(event, now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """How long the next step should wait for a command to arrive; 0: it begins now.

        Ask again after each arrival.
        """
        if sum(self._drafting.values()) + len(self._decoding) >= self._max_batch_tokens:
            return 0
        fixed_ns = self._curve.fixed_ns
        awaited = [
            (absence, usual_ns)
            for absence in self._away.values()
            if absence.is_awaited and (usual_ns := self._usual_ns(absence)) < fixed_ns
        ]
        if not awaited:
            return 0
        away_ns = max(usual_ns for _, usual_ns in awaited)
        self._worth_ns = self._break_even_ns(len(awaited), away_ns)
        if away_ns >= self._worth_ns:
            return 0
        if self._together_ns(len(awaited)) > _FREE_ROWS * fixed_ns:
            # Where rows take time, steps of fewer of them lose less than waiting longer than usual does.
            self._worth_ns = 0.0
        return max(0, round(max(absence.end_ns(usual_ns, self._worth_ns) for absence, usual_ns in awaited) - now_ns))

    def _usual_ns(self, absence: Absence) -> float:
        """How long a sequence that is away usually is so."""
        return _FIRST_GUESS * self._curve.fixed_ns if absence.usual_ns is None else absence.usual_ns

    def _note_late(self, now_ns: int) -> None:
        for absence in self._away.values():
            absence.note_time(now_ns, self._usual_ns(absence), self._worth_ns)

    def _break_even_ns(self, num_awaited: int, away_ns: float) -> float:
        """How long those who are away may be so that all in step give as many output tokens a second as who is ready
        and who is away in turns."""
        num_ready, num_plain = len(self._drafting), len(self._decoding)
        ready_rows = sum(self._drafting.values())
        awaited_rows = num_awaited * self._round_rows
        # Who is ready is away while the others are verified, or longer.
        turns_ns = self._steps_ns(ready_rows + num_plain) + max(self._steps_ns(awaited_rows + num_plain), away_ns)
        # In turns, those who decode plainly have a token in each of the two steps.
        num_round_tokens = self._round_tokens * (num_ready + num_awaited)
        share = (num_round_tokens + num_plain) / (num_round_tokens + 2 * num_plain)
        return share * turns_ns - self._together_ns(num_awaited)

    def _together_ns(self, num_awaited: int) -> float:
        """A step of who is ready and so many who are away."""
        num_rows = sum(self._drafting.values()) + num_awaited * self._round_rows + len(self._decoding)
        return self._steps_ns(num_rows)

    def _steps_ns(self, num_rows: float) -> float:
        """Of so many rows, in as many steps as they need; a prefill's, which are not counted, make a step of none."""
        num_steps = max(1, math.ceil(num_rows / self._max_batch_tokens))
        return num_steps * self._curve.step_ns(num_rows / num_steps)

    def _note_verdict(self, verdict: Verdict, now_ns: int) -> None:
        sequence_id = verdict.sequence_id
        has_draft = self._drafting.pop(sequence_id, 0) > 0
        # A draft that came into a run and foresaw it wrong was dropped: the run goes on.
        if has_draft and (verdict.num_draft_tokens or sequence_id not in self._decoding):
            self._decoding.pop(sequence_id, None)
            absence = self._absences.setdefault(sequence_id, Absence())
            absence.since_ns = now_ns
            self._away[sequence_id] = absence
            self._round_tokens += _WEIGHT * (len(verdict.token_ids) - self._round_tokens)
        elif self._decoding.get(sequence_id, 0) <= verdict.base_length + len(verdict.token_ids):
            self._decoding.pop(sequence_id, None)

    def _return(self, sequence_id: int, now_ns: int, *, is_seen: bool) -> None:
        absence = self._away.pop(sequence_id, None)
        if absence is not None:
            absence.note_return(now_ns, is_seen=is_seen)

    def _forget(self, sequence_id: int) -> None:
        for known in (self._absences, self._away, self._drafting, self._decoding):
            known.pop(sequence_id, None)
