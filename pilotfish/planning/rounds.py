"""One target with its drafters, step by step, for as long as its batch stays the same.

Sequences go round: drafted, verified, drafted again. Both engines take what is ready when a step begins, and the target
waits for what is about to be, as the real ones do. Where waiting does not pay, sequences fall into groups that take
turns, which the closed formulas do not see: what is verified in two half batches waits twice for the weights, what
drafts meanwhile costs nothing.

A round's yield is an expectation elsewhere; which rounds drafting ahead hits is luck, as it is there: where a step has
many sequences, mostly somebody's draft was not foreseen, and the others wait for it or go without. The same luck every
time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

import simpy

from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.round_delay import RoundDelay

_NUM_MEASURED = 3000
"""Rounds of all sequences together; a large batch finds its rhythm sooner."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 8, 200
"""Of one sequence."""

Process = Generator[simpy.Event, None, None]


@dataclass(slots=True, eq=False)
class _Draft:
    sequence: _Sequence
    num_left: int
    """Steps still to come."""
    num_rows: int = 1
    """In each of them: drafted ahead, a token for each outcome."""
    is_waited_for: bool = False
    """False while it is drafted ahead."""


@dataclass(slots=True, eq=False)
class _Sequence:
    number: int
    target: _Target
    drafter: _Drafter
    luck: random.Random
    """Of drafting ahead."""
    draft: _Draft | None = None
    """Of the round that begins, or ahead for the one after it."""


class Rounds:
    """A cell of a fleet: num_targets targets share num_drafters drafters, every target with `batch` sequences."""

    def __init__(
        self, model: DecodingModel, batch: int, num_draft_tokens: int, *, num_targets: int = 1, num_drafters: int = 1
    ) -> None:
        self.model, self.num_draft_tokens = model, num_draft_tokens
        self.env = simpy.Environment()
        self.num_verified = 0
        """Rounds of all sequences."""
        self.num_steps = 0
        """Of all targets."""
        self._targets = [_Target(self) for _ in range(num_targets)]
        drafters = [_Drafter(self) for _ in range(num_drafters)]
        self._sequences = [
            _Sequence(index, self._targets[index % num_targets], drafters[index % num_drafters], random.Random(index))
            for index in range(batch * num_targets)
        ]
        self._half_trip_s = model.round_trip_s / 2
        self._num_outcomes = model.num_outcomes_ahead(batch, num_draft_tokens)
        self._hit_rate = model.drafting.hit_rate(num_draft_tokens, self._num_outcomes)

    def measure_round_s(self) -> float:
        """Mean time of a round, once the rounds have found their rhythm."""
        for sequence in self._sequences:
            self._begin_round(sequence)
        num_rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, _NUM_MEASURED // len(self._sequences)))
        self._run_rounds(num_rounds // 2)
        start_s, start_rounds = self.env.now, self.num_verified
        self._run_rounds(num_rounds)
        return (self.env.now - start_s) * len(self._sequences) / (self.num_verified - start_rounds)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call it then."""
        self.env.timeout(delay_s).callbacks.append(lambda _: call())

    def drafted(self, draft: _Draft) -> None:
        """A draft is ready: by the orchestrator to the target, if it is waited for."""
        if draft.is_waited_for:
            sequence = draft.sequence
            self.later(self._half_trip_s, lambda: self._handle(sequence, lambda: self._verify(sequence)))

    def verified(self, sequences: list[_Sequence]) -> None:
        """Verdicts have come to the orchestrator."""
        self.num_verified += len(sequences)
        for sequence in sequences:
            self._handle(sequence, lambda sequence=sequence: self._go_on(sequence))  # type: ignore[misc]

    def _handle(self, sequence: _Sequence, call: Callable[[], None]) -> None:
        """One message after the other, of a target's sequences."""
        target, now_s = sequence.target, self.env.now
        target.handled_s = max(target.handled_s, now_s) + self.model.handling_s
        self.later(target.handled_s - now_s, call)

    def _go_on(self, sequence: _Sequence) -> None:
        """After a verdict: with the draft that was made ahead, or with a new one."""
        if sequence.draft is None or sequence.luck.random() >= self._hit_rate:
            self._begin_round(sequence)
            return
        sequence.draft.is_waited_for = True
        if sequence.draft.num_left == 0:
            self._verify(sequence)

    def _begin_round(self, sequence: _Sequence) -> None:
        if sequence.draft is not None:
            sequence.drafter.drop(sequence.draft)
        draft = sequence.draft = _Draft(sequence, self.num_draft_tokens, is_waited_for=True)
        self.later(self._half_trip_s, lambda: sequence.drafter.take(draft))

    def _verify(self, sequence: _Sequence) -> None:
        sequence.draft = None
        if self._num_outcomes:
            # One step more: the outcomes are chosen when the token after the draft is known, too.
            num_steps = self.num_draft_tokens + 1
            sequence.draft = _Draft(sequence, num_steps, num_rows=self._num_outcomes)
            sequence.drafter.take(sequence.draft)
        self.later(self._half_trip_s, lambda: sequence.target.take(sequence))

    def _run_rounds(self, num_rounds: int) -> None:
        goal = self.num_verified + num_rounds * len(self._sequences)
        while self.num_verified < goal:
            self.env.step()


class _Target:
    """Verifies what is ready (or half of it) and what is worth waiting for, as many rows as fit a step."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self.handled_s = 0.0
        """When the orchestrator is done with the messages of its sequences."""
        k = rounds.num_draft_tokens
        model = rounds.model
        self._delay = RoundDelay(model.step_s, k, model.drafting.expected_tokens(k), model.max_batch_tokens)
        self._arrived: list[_Sequence] = []
        self._ready: deque[_Sequence] = deque()
        self._arrival = rounds.env.event()
        rounds.env.process(self._run())

    def take(self, sequence: _Sequence) -> None:
        self._delay.took(sequence.number, self._rounds.env.now)
        self._arrived.append(sequence)
        if not self._arrival.triggered:
            self._arrival.succeed()

    def _run(self) -> Process:
        rounds, model = self._rounds, self._rounds.model
        num_rows = rounds.num_draft_tokens + 1
        limit = max(1, model.max_batch_tokens // num_rows)
        while True:
            if not self._ready and not self._arrived:
                self._arrival = rounds.env.event()
                yield self._arrival
            # What arrives at the same instant is in the same step.
            yield rounds.env.timeout(0)
            self._admit()
            yield from self._wait()
            num_ready = len(self._ready)
            most = self._delay.max_sequences(rounds.env.now) or num_ready
            batch = [self._ready.popleft() for _ in range(min(limit, most, num_ready))]
            step_s = model.step_s(len(batch), len(batch) * num_rows)
            yield rounds.env.timeout(step_s)
            rounds.num_steps += 1
            self._delay.gave([sequence.number for sequence in batch], step_s, rounds.env.now)
            rounds.later(model.round_trip_s / 2, lambda batch=batch: rounds.verified(batch))  # type: ignore[misc]

    def _admit(self) -> None:
        """What has arrived may be in the next step."""
        self._ready.extend(self._arrived)
        self._arrived = []

    def _wait(self) -> Process:
        """Wait as long as it pays, as pilotfish.engine.process.worker does."""
        env = self._rounds.env
        while (wait_s := self._delay.wait_s(env.now)) > 0:
            self._arrival = env.event()
            yield self._arrival | env.timeout(wait_s)
            self._admit()


class _Drafter:
    """A token in each step for every draft that is waited for; when none is, for those that are made ahead."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._drafts: dict[_Draft, None] = {}
        self._arrival = rounds.env.event()
        rounds.env.process(self._run())

    def take(self, draft: _Draft) -> None:
        self._drafts[draft] = None
        if not self._arrival.triggered:
            self._arrival.succeed()

    def drop(self, draft: _Draft) -> None:
        self._drafts.pop(draft, None)

    def _run(self) -> Process:
        rounds, model = self._rounds, self._rounds.model
        while True:
            if not self._drafts:
                self._arrival = rounds.env.event()
                yield self._arrival
            yield rounds.env.timeout(0)
            batch = [draft for draft in self._drafts if draft.is_waited_for] or list(self._drafts)
            if not batch:
                continue
            yield rounds.env.timeout(model.draft_step_s(len(batch), sum(draft.num_rows for draft in batch)))
            for draft in batch:
                draft.num_left -= 1
                if draft.num_left == 0 and draft in self._drafts:
                    del self._drafts[draft]
                    rounds.drafted(draft)
