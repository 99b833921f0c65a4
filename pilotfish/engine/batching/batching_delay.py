"""How long a step waits for sequences that come back soon, and when it takes half of those that are there.

A speculating sequence is away between its verdict and its next draft, unless it goes on by itself. A step without it
splits the batch into groups that take turns, and each reads the weights: 0.75 of the throughput at 2 to 8 sequences.
Waiting pays as long as the step gives more tokens for the time of both (StepCosts). Pure: no I/O and no clock.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pilotfish.engine.batching.return_time import Returns, ReturnTime
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import CloseSequence, Decode, EngineCommand, Event, SequenceError, Verdict, Verify
from pilotfish.types import SequenceErrorCode

_WEIGHT = 0.25
"""Weight of the latest value in a moving average."""
_MARGIN = 1.05
"""Wait or split only for a gain of 5 %: groups persist."""
_LATE_NS = 100_000
"""Time that a sequence may be later than expected, or a timer earlier."""
_MOST_STEPS = 1.25
"""The longest wait, in steps such as could run now; a sequence that is away for longer is not waited for."""
_FIRST_GUESS = 0.25
"""Guess of a sequence's time away before any has come back, in steps of one row."""
_LEAST_SHARE_BACK = 1 / 3
"""Do not halve if over a third return during the step: sequences take turns already."""
_MAX_CHOICES = 16
"""Waits that are compared, at most about."""
_LIVES_ON = frozenset((SequenceErrorCode.STALE, SequenceErrorCode.INVALID))
"""Errors of a command, of which the sequence knows nothing. Where INVALID ends the sequence, CloseSequence follows."""


class BatchingDelay:
    """Decides when a target's next step begins and what it takes, from what goes in and out of the engine."""

    def __init__(self, costs: StepCosts, max_batch_tokens: int) -> None:
        """costs: the engine keeps them current. max_batch_tokens: rows of a step; a full one waits for nobody."""
        self._costs = costs
        self._max_batch_tokens = max_batch_tokens
        self._known: dict[int, ReturnTime] = {}
        """Return times of the sequences that have had a draft verified."""
        self._away: dict[int, ReturnTime] = {}
        """Return times of those that are away now."""
        self._drafting: dict[int, int] = {}
        """Rows of each sequence whose draft waits to be verified."""
        self._decoding: dict[int, int] = {}
        """End of each run of plain decoding, in tokens of its sequence."""
        self._round_rows = self._round_tokens = 2.0
        """Rows and output tokens of a verification, on average."""
        self._latest: ReturnTime | None = None
        """Return time of the sequence that came back last: a new one is taken to be like it."""
        self._gave_ns = 0
        """When the last step with verdicts ended."""
        self._idle_ns: int | None = None
        """Time that nothing was here after that step; None: nothing is yet."""
        self._is_computing = False
        self._begin_ns: int | None = None
        """When the wait for the next step began."""
        self._end_ns = 0.0
        self._num_awaited = 0
        """Arrivals after which the plan is made anew; it holds until _end_ns otherwise."""

    def took(self, commands: Iterable[EngineCommand], arrived_ns: int) -> None:
        """Commands that arrived then."""
        for command in commands:
            sequence_id = command.sequence_id
            if isinstance(command, CloseSequence):
                self._forget(sequence_id)
            elif isinstance(command, Verify):
                self._return(sequence_id, arrived_ns)
                num_rows = self._drafting[sequence_id] = 1 + len(command.draft_token_ids)
                self._round_rows += _WEIGHT * (num_rows - self._round_rows)
            elif isinstance(command, Decode):
                self._return(sequence_id, arrived_ns)
                goal = command.base_length + command.num_tokens
                self._decoding[sequence_id] = max(goal, self._decoding.get(sequence_id, 0))

    def gave(self, events: Sequence[Event], now_ns: int) -> None:
        """A step has ended with these events."""
        self._begin_ns = None
        self._end_ns = 0.0
        self._is_computing = False
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
        if any(isinstance(event, Verdict) for event in events):
            self._gave_ns = now_ns
            self._idle_ns = 0
        if not self._drafting and not self._decoding:
            self._idle_ns = None

    def wait_ns(self, now_ns: int) -> int:
        """How long the next step should wait for a command to arrive; 0: it begins now. Ask again after that."""
        num_rows = sum(self._drafting.values()) + len(self._decoding)
        if not self._away or num_rows >= self._max_batch_tokens:
            return 0
        if now_ns >= self._end_ns or self._num_awaited <= 0:
            self._plan(now_ns, num_rows)
        return max(0, round(self._end_ns - now_ns))

    def max_rows(self, now_ns: int) -> int | None:
        """A step begins: the rows that it should take, the others waiting for the next; None: all that are ready.

        Where all are verified in one step the target stands still while they are drafted for. In two halves that take
        turns either is drafted for while the other is verified, and the weights are read once more. Only of drafts
        (beside plain decoding the target does not stand still), and if all fit a step (else they take turns anyway).
        """
        self._is_computing = True
        num_ready, num_rows = len(self._drafting), sum(self._drafting.values())
        if self._decoding or num_ready < 2 or num_rows > self._max_batch_tokens or not self._idle_ns:
            return None
        step_ns = self._costs.step_ns(num_rows)
        returns = [pair for one in self._away.values() for pair in one.returns(now_ns)]
        num_back = round(sum(share for in_ns, share in returns if in_ns < step_ns))
        if num_back > _LEAST_SHARE_BACK * num_ready:
            return None
        all_rows = num_rows + num_back * self._round_rows
        first = math.ceil((num_ready + num_back) / 2)
        first_rows = all_rows * first / (num_ready + num_back)
        in_turns_ns = self._costs.step_ns(first_rows) + max(self._costs.step_ns(all_rows - first_rows), self._idle_ns)
        if first >= num_ready or _MARGIN * in_turns_ns >= self._costs.step_ns(all_rows) + self._idle_ns:
            return None
        # In the order in which they came, as far as the scheduler keeps to it.
        return sum(itertools.islice(self._drafting.values(), first))

    def _plan(self, now_ns: int, num_rows: int) -> None:
        """Plan until when to wait, and for how many."""
        self._begin_ns = now_ns if self._begin_ns is None else self._begin_ns
        step_ns = self._costs.step_ns(num_rows)
        longest_ns = self._begin_ns + _MOST_STEPS * step_ns - now_ns
        awaited = [one.returns(now_ns) for one in self._away.values() if one.mean_ns < _MOST_STEPS * step_ns]
        returns = sorted(pair for pairs in awaited for pair in pairs if pair[0] < longest_ns)
        num_tokens = self._round_tokens * len(self._drafting) + len(self._decoding)
        wait_ns, expected = self._worthwhile(returns, num_rows, num_tokens)
        self._end_ns = now_ns + wait_ns
        # When an eighth of them has come, what is worth waiting for has changed.
        self._num_awaited = math.ceil(expected / 8)

    def _worthwhile(self, returns: Returns, num_rows: int, num_tokens: float) -> tuple[float, float]:
        """The wait that gives the most output tokens for the time of itself and the step after it, and how many are
        expected back in it; (0, 0): the step of now gives as many."""
        best = _MARGIN * num_tokens / max(1.0, self._costs.step_ns(num_rows))
        expected, choice = 0.0, (0.0, 0.0)
        every = 1 + len(returns) // _MAX_CHOICES
        for number, (in_ns, share) in enumerate(returns, start=1):
            expected += share
            rows = num_rows + expected * self._round_rows
            if rows > self._max_batch_tokens:
                break
            if number % every == 0 or number == len(returns):
                rate = (num_tokens + expected * self._round_tokens) / (in_ns + self._costs.step_ns(rows))
                if rate > best:
                    best, choice = rate, (in_ns + _LATE_NS, expected)
        return choice

    def _note_verdict(self, verdict: Verdict, now_ns: int) -> None:
        sequence_id = verdict.sequence_id
        has_draft = self._drafting.pop(sequence_id, 0) > 0
        # A draft that came into a run and foresaw it wrong was dropped: the run goes on.
        if has_draft and (verdict.num_draft_tokens or sequence_id not in self._decoding):
            self._decoding.pop(sequence_id, None)
            self._round_tokens += _WEIGHT * (len(verdict.token_ids) - self._round_tokens)
            if verdict.num_next_draft_tokens:
                self._drafting[sequence_id] = 1 + verdict.num_next_draft_tokens
                return
            guess_ns = _FIRST_GUESS * self._costs.step_ns(1)
            known = self._known.get(sequence_id) or replace(self._latest or ReturnTime(guess_ns, guess_ns))
            known.since_ns = now_ns
            self._known[sequence_id] = self._away[sequence_id] = known
        elif self._decoding.get(sequence_id, 0) <= verdict.base_length + len(verdict.token_ids):
            self._decoding.pop(sequence_id, None)

    def _return(self, sequence_id: int, arrived_ns: int) -> None:
        self._num_awaited -= 1
        if self._idle_ns is None:
            self._idle_ns = 0 if self._is_computing else max(0, arrived_ns - self._gave_ns)
        if (known := self._away.pop(sequence_id, None)) is not None:
            known.add(max(0, arrived_ns - known.since_ns))
            self._latest = known

    def _forget(self, sequence_id: int) -> None:
        self._num_awaited = 0  # it was waited for, or waited itself
        for known in (self._known, self._away, self._drafting, self._decoding):
            known.pop(sequence_id, None)
        if not self._drafting and not self._decoding:
            self._idle_ns = None
