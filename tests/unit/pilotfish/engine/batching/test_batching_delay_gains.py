"""What waiting for sequences gains and costs: a replica and its clients on a clock of their own."""

import heapq
import itertools
import random
from typing import Any

import pytest

from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import Command, Decode, Verdict, Verify

MS = 1_000_000
ENDLESS = 1 << 30


class Replica:
    """An engine whose steps take fixed + per row (by the roofline: the larger of the two), and sequences that are away
    for a while after each verdict."""

    def __init__(
        self,
        *,
        delays: bool,
        row_ms: float = 0.0,
        step_ms: float = 8.0,
        is_roofline: bool = False,
        away: random.Random | None = None,
        short_share: float = 0.5,
    ) -> None:
        """away: sequences are away for 1.5 ms instead, in so large a share of their rounds, by this."""
        self._away, self._short_share = away, short_share
        self.now_ns = 0
        self.num_steps = self.num_step_rows = 0
        self.num_tokens: dict[int, int] = {}
        self._row_ns, self._fixed_ns, self._is_roofline = row_ms * MS, step_ms * MS, is_roofline
        costs = StepCosts.sampled(lambda _sequences, rows: self._step_ns(rows) / 1e9, 512)
        self.delay = BatchingDelay(costs, 512) if delays else None
        self._away_ns: dict[int, float] = {}
        self._ready: dict[int, int] = {}
        self._arrivals: list[tuple[float, int]] = []

    def add_speculating(self, sequence_id: int, away_ms: float, starts_ms: float = 0.0) -> None:
        self._away_ns[sequence_id] = away_ms * MS
        self.num_tokens[sequence_id] = 0
        heapq.heappush(self._arrivals, (starts_ms * MS, sequence_id))

    def add_plain(self, sequence_id: int) -> None:
        self.num_tokens[sequence_id] = 0
        self._ready[sequence_id] = 1
        self._tell([Decode(sequence_id, 0, ENDLESS)])

    def run(self, until_ms: float) -> None:
        while self.now_ns < until_ms * MS:
            self._arrive()
            self._wait()
            if not self._ready:
                self.now_ns = self._arrivals[0][0]
                self._arrive()
                self._wait()
            self._step()

    def tokens_per_s(self, sequence_id: int) -> float:
        return self.num_tokens[sequence_id] / (self.now_ns / 1e9)

    def _wait(self) -> None:
        while self.delay is not None and self._ready:
            wait_ns = self.delay.wait_ns(self.now_ns)
            if wait_ns <= 0:
                return
            end_ns = self.now_ns + wait_ns
            if not self._arrivals or self._arrivals[0][0] > end_ns:
                self.now_ns = end_ns
                continue
            self.now_ns = max(self.now_ns, self._arrivals[0][0])
            self._arrive()

    def _arrive(self) -> None:
        while self._arrivals and self._arrivals[0][0] <= self.now_ns:
            _, sequence_id = heapq.heappop(self._arrivals)
            self._ready[sequence_id] = 6
            self._tell([Verify(sequence_id, 10, (1, 2, 3, 4, 5))])

    def _step(self) -> None:
        self.num_steps += 1
        batch = self._batch()
        num_rows = self.num_step_rows = sum(self._ready[sequence_id] for sequence_id in batch)
        step_ns = self._step_ns(num_rows)
        self.now_ns += step_ns
        verdicts = []
        for sequence_id in batch:
            drafted = sequence_id in self._away_ns
            tokens = (7, 8, 9) if drafted else (7,)
            verdicts.append(Verdict(sequence_id, 10, 5 if drafted else 0, 2 if drafted else 0, tokens))
            self.num_tokens[sequence_id] += len(tokens)
            if drafted:
                del self._ready[sequence_id]
                is_short = self._away is not None and self._away.random() < self._short_share
                away_ns = 1.5 * MS if is_short else self._away_ns[sequence_id]
                heapq.heappush(self._arrivals, (self.now_ns + away_ns, sequence_id))
        if self.delay is not None:
            self.delay.gave(verdicts, round(self.now_ns))

    def _step_ns(self, num_rows: int) -> float:
        rows_ns = self._row_ns * num_rows
        return max(self._fixed_ns, rows_ns) if self._is_roofline else self._fixed_ns + rows_ns

    def _batch(self) -> list[int]:
        """Those in the step, the longest ready first."""
        max_rows = None if self.delay is None else self.delay.max_rows(round(self.now_ns))
        rows = itertools.accumulate(self._ready.values())
        return [number for number, upto in zip(self._ready, rows, strict=True) if max_rows is None or upto <= max_rows]

    def _tell(self, commands: list[Command]) -> None:
        if self.delay is not None:
            self.delay.took(commands, round(self.now_ns))


def pair(
    count: int, away_ms: float, num_plain: int = 0, until_ms: float = 4000, **more: Any
) -> tuple[Replica, Replica]:
    """The same sequences, three milliseconds apart at first, on a replica that waits and on one that never does."""
    replicas = []
    for delays in (True, False):
        random_away = {"away": random.Random(1)} if "short_share" in more else {}
        replica = Replica(delays=delays, **more, **random_away)
        for index in range(num_plain):
            replica.add_plain(1000 + index)
        for index in range(count):
            replica.add_speculating(index, away_ms, starts_ms=3.0 * index)
        replica.run(until_ms)
        replicas.append(replica)
    return replicas[0], replicas[1]


def gain(together: Replica, apart: Replica) -> float:
    return sum(together.num_tokens.values()) / sum(apart.num_tokens.values())


ROOFLINE: dict[str, Any] = {"row_ms": 0.1, "is_roofline": True}


@pytest.mark.parametrize(
    ("count", "away_ms", "more", "least"),
    [
        (2, 3.5, {}, 1.3),  # two groups in turns take 16 ms a round, all together 11.5
        (3, 3.5, {}, 1.3),
        (8, 3.5, {}, 1.3),
        (4, 8.5, {}, 1.4),  # who is away for just longer than a step would wait for the one after it
        (8, 2, {"num_plain": 1}, 1.2),
        (8, 12, {"short_share": 0.5, "until_ms": 5000}, 1.15),  # a draft is often there at once
        (2, 12, {"short_share": 0.8, "until_ms": 5000}, 1.25),
    ],
)
def test_waiting_for_who_comes_back_soon_pays(count: int, away_ms: float, more: dict[str, Any], least: float):
    assert gain(*pair(count, away_ms, **more)) > least


@pytest.mark.parametrize(
    ("count", "away_ms", "more"),
    [
        (1, 3.5, {}),
        (4, 20, {}),
        (8, 6, {"row_ms": 1.0}),  # rows cost most
        (1, 3.5, {"num_plain": 16}),
        (20, 4.5, {"short_share": 0.5, **ROOFLINE}),  # groups in turns hide their drafts behind each other's steps
        (24, 4.5, {"short_share": 0.5, **ROOFLINE}),
        (40, 4.5, {"short_share": 0.5, **ROOFLINE}),
        *((8, away_ms, {"num_plain": 1}) for away_ms in (14, 20, 40, 100)),
        (8, 40, {"num_plain": 1, "short_share": 0.5}),
    ],
)
def test_waiting_costs_nothing_where_it_cannot_pay(count: int, away_ms: float, more: dict[str, Any]):
    together, apart = pair(count, away_ms, **more)
    assert gain(together, apart) > 0.95
    if "num_plain" in more:
        assert together.num_tokens[1000] > (0.85 if "short_share" in more else 0.97) * apart.num_tokens[1000]


@pytest.mark.parametrize("away_ms", [14.0, 40.0])
def test_one_that_comes_back_soon_does_not_wait_for_those_who_do_not(away_ms: float):
    together, apart = (Replica(delays=delays) for delays in (True, False))
    for replica in (together, apart):
        for index in range(4):
            replica.add_speculating(index, away_ms, starts_ms=3.0 * index)
        replica.add_speculating(1000, 2.0)
        replica.run(4000)
    assert gain(together, apart) > 0.97
    assert together.num_tokens[1000] > 0.97 * apart.num_tokens[1000]


@pytest.mark.parametrize("count", [32, 64])
def test_steps_bound_by_arithmetic_wait_for_nobody_however_equal_they_are(count: int):
    replica = Replica(delays=True, **ROOFLINE)
    for index in range(count):
        replica.add_speculating(index, 5.0 + 0.3 * (index % 8), starts_ms=3.0 * index)
    replica.run(4000)
    # All together a round would take their rows' time and what they are away; in turns either hides the other.
    assert replica.tokens_per_s(0) > 1.03 * 3 / ((0.1 * 6 * count + 6) / 1000)


def in_step(count: int, *, away_ms: float, num_plain: int = 0, **costs: Any) -> Replica:
    """Sequences that all begin at once and come back at once."""
    replica = Replica(delays=True, **costs)
    for index in range(count):
        replica.add_speculating(index, away_ms)
    for index in range(num_plain):
        replica.add_plain(1000 + index)
    replica.run(4000)
    return replica


@pytest.mark.parametrize(("count", "away_ms"), [(27, 6.0), (64, 8.0), (64, 30.0), (84, 12.0)])
def test_sequences_in_step_take_turns_where_the_arithmetic_takes_the_time(count: int, away_ms: float):
    replica = in_step(count, away_ms=away_ms, **ROOFLINE)
    step_ms = 0.1 * 6 * count
    in_turns_ms = max(step_ms, step_ms / 2 + away_ms)
    assert replica.tokens_per_s(0) == pytest.approx(3 / in_turns_ms * 1000, rel=0.08), f"not in {step_ms + away_ms} ms"


@pytest.mark.parametrize(
    ("count", "away_ms", "costs"),
    [
        (2, 3.5, {}),
        (64, 3.5, {}),
        (64, 3.0, {"row_ms": 0.05}),
        (3, 2.0, {"step_ms": 2.0, "row_ms": 0.1}),
        (16, 6.0, {"step_ms": 20.0, "row_ms": 1.0}),
        (16, 5.0, ROOFLINE),
    ],
)
def test_sequences_stay_in_step_where_two_steps_take_longer(count: int, away_ms: float, costs: dict[str, Any]):
    replica = in_step(count, away_ms=away_ms, **costs)
    row_ms, step_ms = costs.get("row_ms", 0.0), costs.get("step_ms", 8.0)
    rows_ms = 6 * count * row_ms
    together_ms = (max(step_ms, rows_ms) if "is_roofline" in costs else step_ms + rows_ms) + away_ms
    assert replica.tokens_per_s(0) == pytest.approx(3 / together_ms * 1000, rel=0.01)


def test_a_target_with_plain_decoding_to_do_never_stands_still():
    assert in_step(64, away_ms=8.0, num_plain=1, **ROOFLINE).num_step_rows > 6 * 32


@pytest.mark.parametrize(("num_fast", "num_paused"), [(1, 1), (4, 16), (8, 64)])
def test_clients_that_have_paused_cost_the_others_nothing(num_fast: int, num_paused: int):
    """However many they are: an arrival that was waited for is a reason to think again."""
    alone, beside = Replica(delays=True), Replica(delays=True)
    for replica in (alone, beside):
        for index in range(num_fast):
            replica.add_speculating(index, 2.0 + 0.4 * index, starts_ms=1.0 * index)
    for index in range(num_paused):
        beside.add_speculating(100 + index, 5000.0, starts_ms=2.3 * index)
    tokens = []
    for replica in (alone, beside):
        replica.run(3000)
        tokens.append(sum(replica.num_tokens[index] for index in range(num_fast)))
    assert tokens[1] > 0.95 * tokens[0]


def test_one_that_fell_behind_gets_no_step_of_its_own():
    """15 in one step and one in the next would take longer than all in one, though rows cost most."""
    replica = Replica(delays=True, **ROOFLINE)
    for index in range(16):
        replica.add_speculating(index, 4.5, starts_ms=5.0 * (index == 15))
    replica.run(4000)
    assert replica.tokens_per_s(0) > 0.95 * 3 / ((0.1 * 6 * 16 + 4.5) / 1000)


@pytest.mark.parametrize("count", [2, 4])
def test_drafts_made_ahead_for_some_rounds_only_do_not_bring_sequences_out_of_step(count: int):
    together, _ = pair(count, 6.0, until_ms=8000, short_share=0.5)
    # In step, a round takes the longest of their absences: 6 ms, unless all drafts were there at once.
    longest_ms = 6.0 - 4.5 * 0.5**count
    assert together.tokens_per_s(0) > 0.97 * 3 / ((8 + longest_ms) / 1000)
