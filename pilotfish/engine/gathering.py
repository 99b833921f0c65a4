"""When a step waits a moment for sequences that come back soon.

A speculating sequence is away between its verdict and its next draft. A step that begins as soon as anything is
ready leaves those out, and from two sequences up they fall into groups that take turns: the weights are read once
for each group in every round, however few are in it. Waiting a moment instead fills the step. It pays as long as the
step then gives more output tokens for the time that it and the wait take; where rows cost what they yield, or many
that decode plainly would wait for few, it does not. Where rows cost what they yield a step may even leave half of what
is ready to the next one (`micro_batches.py`).

Pure: no I/O and no clock.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from pilotfish.engine.absence import Absence, Returns
from pilotfish.engine.gathering_plan import GatheringPlan
from pilotfish.engine.micro_batches import first_micro_batch
from pilotfish.engine.step_curve import StepCurve
from pilotfish.messages import CloseSequence, Command, Decode, Event, SequenceError, Verdict, Verify
from pilotfish.types import LoadReport, SequenceErrorCode

_WEIGHT = 0.25
"""Of the latest value in a moving average."""
_MARGIN = 1.05
"""Speed that waiting has to gain. Two groups of which one is verified while the other drafts are better left alone than
drawn together and apart again."""
_FIRST_GUESS = 0.25
"""Of reading the weights: how long a sequence is taken to be away before that is known of any."""
_LATE_NS = 100_000
"""What a sequence may be later than expected, and a timer earlier."""
_MOST_STEPS = 1.25
"""Of the step that could run now: nobody who could be in it waits for longer, and nobody who is away for longer on
average is waited for. Whoever comes back a little after the next step would begin waits for that one, too."""
_LIVES_ON = frozenset((SequenceErrorCode.STALE, SequenceErrorCode.INVALID))
"""Errors of a command, of which the sequence knows nothing. INVALID also ends a sequence that has had no result yet, as
one whose grammar cannot be used: then the replica's front sends CloseSequence (`pilotfish/rpc/stream_connection.py`,
`deliver`). Without that its run would count for one that decodes plainly, for ever."""
_LEAST_SHARE_BACK = 1 / 3
"""Of the sequences that are ready: with so many more to come during the step, sequences take turns already."""
_NUM_EVALUATED = 16
"""Of the times at which somebody may be back, for many are nearly the same."""
_NUM_LOOKS = 4
"""At the shorter time it may be back, at the longer one, and a little after each."""


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
        self._plan = GatheringPlan()
        """Of the next step."""
        self._gave_ns = 0
        """When the last step with verdicts ended,"""
        self._idle_ns: int | None = None
        """and how long no draft and no run was here then, prefills or not; None: none is."""
        self._latest_absence = Absence()
        """Of the sequence that came back last: a new one is believed to be like it."""

    def took(self, commands: Iterable[Command], now_ns: int, *, is_seen: bool) -> None:
        """Commands have arrived: just now (is_seen), or at some time in the step before."""
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

    def give_up(self, now_ns: int) -> None:
        """A wait has ended without an arrival: the step begins."""
        self._plan.cancel()
        for absence in self._away.values():
            absence.give_up(now_ns)

    def gave(self, events: Sequence[Event], load: LoadReport, now_ns: int) -> None:
        """A step has ended with these events; the load tells what it took."""
        self._plan.cancel()
        has_verdicts = any(isinstance(event, Verdict) for event in events)
        if has_verdicts:
            # Else the load may still be that of the step before.
            self._curve.add(load.num_step_tokens, load.step_time_ns)
        for event in events:
            if isinstance(event, SequenceError):
                if event.code in _LIVES_ON:
                    self._drafting.pop(event.sequence_id, None)
                else:
                    self._forget(event.sequence_id)
            elif isinstance(event, Verdict) and event.finish_reason is not None:
                self._forget(event.sequence_id)
            elif isinstance(event, Verdict):
                self._note_verdict(event, now_ns)
        if has_verdicts:
            self._gave_ns, self._idle_ns = now_ns, 0
        self._note_idle()

    def wait_ns(self, now_ns: int) -> int:
        """How long the next step should wait for a command to arrive; 0: it begins now.

        Ask again after each arrival.
        """
        if not self._away:
            return 0
        if self._plan.is_over(now_ns):
            self._plan_wait(now_ns)
        return max(0, round(self._plan.end_ns - now_ns))

    def max_rows(self, now_ns: int) -> int | None:
        """Rows that the step which begins now should take, the others waiting for the next; None: all that are ready.

        Only of drafts, for what decodes plainly the target does not stand still; and only if all fit a step, else they
        take turns anyway.
        """
        num_ready, num_rows = len(self._drafting), sum(self._drafting.values())
        if self._decoding or num_ready < 2 or num_rows > self._max_batch_tokens or not self._idle_ns:
            return None
        if self._first_micro_batch(num_ready, num_rows) == num_ready:
            return None
        step_ns = self._steps_ns(num_rows)
        returns = self._returns(self._away, now_ns).values()
        num_back = round(sum(probability for pairs in returns for in_ns, probability in pairs if in_ns < step_ns))
        if num_back > _LEAST_SHARE_BACK * num_ready:
            return None
        first = self._first_micro_batch(num_ready + num_back, num_rows + num_back * self._round_rows)
        # In the order in which they came, as far as the scheduler keeps to it.
        return sum(itertools.islice(self._drafting.values(), first)) if first < num_ready else None

    def _first_micro_batch(self, num_sequences: int, num_rows: float) -> int:
        curve = self._curve
        return first_micro_batch(num_sequences, num_rows, self._idle_ns or 0, curve.step_ns, curve.interpolated_ns)

    def _plan_wait(self, now_ns: int) -> None:
        """Until when to wait, and for whom."""
        num_rows = sum(self._drafting.values()) + len(self._decoding)
        step_ns = self._steps_ns(num_rows)
        most_ns = _MOST_STEPS * step_ns
        returns: dict[int, Returns] = {}
        if num_rows < self._max_batch_tokens:
            # Who is away for longer on average would miss one step of several, and is no gain.
            returns = self._returns([number for number, one in self._away.items() if one.mean_ns < most_ns], now_ns)
        self._plan.begin(now_ns, returns)
        if not returns:
            return
        num_tokens = self._round_tokens * len(self._drafting) + len(self._decoding)
        rate = _MARGIN * num_tokens / step_ns
        worth_ns = self._worth_ns(rate, num_rows, num_tokens, len(returns))
        for _ in range(_NUM_LOOKS):
            longest_ns = min(worth_ns, now_ns + most_ns - self._plan.end_ns)
            if longest_ns <= 0:
                return
            in_time = sorted([pair for pairs in returns.values() for pair in pairs if pair[0] < longest_ns])
            wait_ns = self._worthwhile_ns(in_time, rate, num_rows, num_tokens)
            if not wait_ns:
                return
            self._plan.end_ns += wait_ns
            # If nobody has come by then, those who are left are the later ones.
            returns = self._returns(returns, self._plan.end_ns)

    def _returns(self, sequence_ids: Iterable[int], now_ns: float) -> dict[int, Returns]:
        """Of those who may be back."""
        guess_ns = _FIRST_GUESS * self._curve.fixed_ns
        all_returns = {number: self._away[number].returns(now_ns, guess_ns) for number in sequence_ids}
        return {number: returns for number, returns in all_returns.items() if returns}

    def _worth_ns(self, rate: float, num_rows: int, num_tokens: float, num_expected: int) -> float:
        """How long a wait would be worth it for all who are expected to come. Longer ones are not looked at: that
        spares most of the work where steps are bound by arithmetic. Up to the roofline's knee some of them may be worth
        more than all; looking at those, too, gave as many tokens."""
        if not rate:
            return math.inf
        all_ns = self._steps_ns(num_rows + num_expected * self._round_rows)
        return (num_tokens + num_expected * self._round_tokens) / rate - all_ns

    def _worthwhile_ns(self, returns: Returns, rate: float, num_rows: int, num_tokens: float) -> float:
        """The wait that is expected to give the most output tokens a nanosecond of itself and the step after it, and
        more than `rate`; 0: none does."""
        best, wait_ns, expected = rate, 0.0, 0.0
        every = 1 + len(returns) // _NUM_EVALUATED
        for number, (in_ns, probability) in enumerate(returns, start=1):
            expected += probability
            rows = num_rows + expected * self._round_rows
            if rows > self._max_batch_tokens:
                break
            if number % every and number < len(returns):
                continue
            in_step = (num_tokens + expected * self._round_tokens) / (in_ns + self._steps_ns(rows))
            if in_step > best:
                best, wait_ns = in_step, in_ns + _LATE_NS
        return wait_ns

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
            absence = self._absences.get(sequence_id) or self._latest_absence.of_another()
            absence.leave(now_ns)
            self._absences[sequence_id] = absence
            self._away[sequence_id] = absence
            self._round_tokens += _WEIGHT * (len(verdict.token_ids) - self._round_tokens)
        elif self._decoding.get(sequence_id, 0) <= verdict.base_length + len(verdict.token_ids):
            self._decoding.pop(sequence_id, None)

    def _return(self, sequence_id: int, now_ns: int, *, is_seen: bool) -> None:
        self._plan.note_ready(sequence_id)
        if self._idle_ns is None:
            self._idle_ns = now_ns - self._gave_ns if is_seen else 0
        absence = self._away.pop(sequence_id, None)
        if absence is not None:
            absence.note_return(now_ns, is_seen=is_seen)
            self._latest_absence = absence

    def _forget(self, sequence_id: int) -> None:
        if sequence_id in self._away or sequence_id in self._drafting or sequence_id in self._decoding:
            self._plan.cancel()  # it was waited for, or waited itself
        for known in (self._absences, self._away, self._drafting, self._decoding):
            known.pop(sequence_id, None)
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._drafting and not self._decoding:
            self._idle_ns = None
