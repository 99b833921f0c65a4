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
from dataclasses import dataclass

from pilotfish.engine.step_curve import StepCurve
from pilotfish.messages import CloseSequence, Command, Decode, Event, SequenceError, Verdict, Verify
from pilotfish.types import LoadReport

_WEIGHT = 0.25
"""Of the latest value in a moving average."""
_PATIENCE = 1.5
"""A sequence that takes this many times as long as usual is not waited for any longer."""
_GRACE_NS = 300_000
"""What a timer and a busy machine may be late."""
_EARLY_NS = 100_000
"""What a timer may be early."""
_FIRST_GUESS = 0.25
"""Of reading the weights: how long a sequence is taken to be away before that is known."""


@dataclass(slots=True)
class _Habit:
    """How long a sequence is away."""

    usual_ns: float | None = None
    """None: not known yet."""
    since_ns: int = 0
    """When it was last answered."""
    is_late: bool = False

    def end_ns(self, usual_ns: float) -> float:
        """When it is not waited for any longer."""
        return self.since_ns + _PATIENCE * usual_ns + _GRACE_NS

    def note_return(self, now_ns: int, *, is_seen: bool) -> None:
        """is_seen: it came back just now; else at some time in the step before, which only says that it takes less."""
        away_ns = now_ns - self.since_ns
        self.is_late = False
        if self.usual_ns is None:
            self.usual_ns = away_ns if is_seen else None
        elif is_seen:
            self.usual_ns += _WEIGHT * (away_ns - self.usual_ns)
        else:
            self.usual_ns = min(self.usual_ns, away_ns)


class StepGathering:
    """Told what goes in and out of a target's engine, it says how long the next step should wait."""

    def __init__(self, max_batch_tokens: int) -> None:
        """max_batch_tokens: rows of a step at most; a full one waits for nobody."""
        self._max_batch_tokens = max_batch_tokens
        self._habits: dict[int, _Habit] = {}
        """Of the sequences that have had a draft verified."""
        self._away: dict[int, _Habit] = {}
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
        awaited = [(habit, usual_ns) for habit in self._away.values() if (usual_ns := self._usual_ns(habit)) < fixed_ns]
        if not awaited or not self._pays(len(awaited), max(usual_ns for _, usual_ns in awaited)):
            return 0
        return max(0, round(max(habit.end_ns(usual_ns) for habit, usual_ns in awaited) - now_ns))

    def _usual_ns(self, habit: _Habit) -> float:
        """How long a sequence that is away usually is so; without end once it is late."""
        if habit.is_late:
            return float("inf")
        return _FIRST_GUESS * self._curve.fixed_ns if habit.usual_ns is None else habit.usual_ns

    def _note_late(self, now_ns: int) -> None:
        """Who is late takes longer than was thought, or is held up this time."""
        for habit in self._away.values():
            usual_ns = self._usual_ns(habit)
            if not habit.is_late and now_ns + _EARLY_NS >= habit.end_ns(usual_ns):
                habit.is_late, habit.usual_ns = True, _PATIENCE * usual_ns

    def _pays(self, num_awaited: int, away_ns: float) -> bool:
        """Whether all in step give more output tokens a second than who is ready and who is away in turns."""
        num_ready, num_plain = len(self._drafting), len(self._decoding)
        ready_rows = sum(self._drafting.values())
        awaited_rows = num_awaited * self._round_rows
        together_ns = self._steps_ns(ready_rows + awaited_rows + num_plain) + away_ns
        # Who is ready is away while the others are verified, or longer.
        turns_ns = self._steps_ns(ready_rows + num_plain) + max(self._steps_ns(awaited_rows + num_plain), away_ns)
        gained = self._round_tokens * (num_ready + num_awaited) * (1 / together_ns - 1 / turns_ns)
        return gained > num_plain * (2 / turns_ns - 1 / together_ns)

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
            habit = self._habits.setdefault(sequence_id, _Habit())
            habit.since_ns = now_ns
            self._away[sequence_id] = habit
            self._round_tokens += _WEIGHT * (len(verdict.token_ids) - self._round_tokens)
        elif self._decoding.get(sequence_id, 0) <= verdict.base_length + len(verdict.token_ids):
            self._decoding.pop(sequence_id, None)

    def _return(self, sequence_id: int, now_ns: int, *, is_seen: bool) -> None:
        habit = self._away.pop(sequence_id, None)
        if habit is not None:
            habit.note_return(now_ns, is_seen=is_seen)

    def _forget(self, sequence_id: int) -> None:
        for known in (self._habits, self._away, self._drafting, self._decoding):
            known.pop(sequence_id, None)
