"""Sequences on a replica, played on a clock of their own."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import pytest

from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import CloseSequence, Command, Decode, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.types import SamplingParams, SequenceErrorCode

MS = 1_000_000
ENDLESS = 1 << 30


def flat(step_ms: float = 8.0) -> StepCosts:
    """Every step takes the same."""
    return StepCosts.sampled(lambda _sequences, _rows: step_ms / 1e3, 512)


def roofline(row_ms: float = 0.1, step_ms: float = 8.0) -> StepCosts:
    """The larger of the two."""
    return StepCosts.sampled(lambda _sequences, rows: max(step_ms, row_ms * rows) / 1e3, 512)


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


def played(*, delays: bool, away_ms: float, count: int, num_plain: int = 0, row_ms: float = 0.0) -> Replica:
    replica = Replica(delays=delays, row_ms=row_ms)
    for index in range(num_plain):
        replica.add_plain(1000 + index)
    for index in range(count):
        replica.add_speculating(index, away_ms, starts_ms=3.0 * index)
    replica.run(4000)
    return replica


@pytest.mark.parametrize("count", [2, 3, 8])
def test_sequences_that_took_turns_come_into_step(count: int):
    apart = played(delays=False, away_ms=3.5, count=count)
    together = played(delays=True, away_ms=3.5, count=count)
    # Two groups in turns take 16 ms a round, all together 11.5.
    assert together.tokens_per_s(0) > 1.3 * apart.tokens_per_s(0)


def test_one_sequence_waits_for_nobody():
    apart, together = (played(delays=delays, away_ms=3.5, count=1) for delays in (False, True))
    assert together.tokens_per_s(0) == apart.tokens_per_s(0)


def test_sequences_that_are_away_for_longer_than_a_step_are_not_waited_for():
    apart, together = (played(delays=delays, away_ms=20, count=4) for delays in (False, True))
    assert sum(together.num_tokens.values()) >= 0.97 * sum(apart.num_tokens.values())


def test_many_that_decode_plainly_do_not_wait_for_one():
    apart, together = (played(delays=delays, away_ms=3.5, count=1, num_plain=16) for delays in (False, True))
    assert together.tokens_per_s(1000) >= 0.97 * apart.tokens_per_s(1000)


def test_one_that_decodes_plainly_waits_for_many():
    apart, together = (played(delays=delays, away_ms=2, count=8, num_plain=1) for delays in (False, True))
    assert sum(together.num_tokens.values()) > 1.2 * sum(apart.num_tokens.values())


def test_steps_whose_rows_cost_most_wait_for_nobody():
    apart, together = (played(delays=delays, away_ms=6, count=8, row_ms=1.0) for delays in (False, True))
    assert sum(together.num_tokens.values()) >= 0.97 * sum(apart.num_tokens.values())


@pytest.mark.parametrize("count", [32, 64])
def test_steps_bound_by_arithmetic_wait_for_nobody_however_equal_they_are(count: int):
    replica = Replica(delays=True, row_ms=0.1, is_roofline=True)
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


ROOFLINE: dict[str, Any] = {"row_ms": 0.1, "is_roofline": True}


@pytest.mark.parametrize(("count", "away_ms"), [(27, 6.0), (32, 8.0), (64, 8.0), (64, 30.0), (84, 12.0)])
def test_sequences_in_step_take_turns_where_the_arithmetic_takes_the_time(count: int, away_ms: float):
    replica = in_step(count, away_ms=away_ms, **ROOFLINE)
    step_ms = 0.1 * 6 * count
    in_turns_ms = max(step_ms, step_ms / 2 + away_ms)
    assert replica.tokens_per_s(0) == pytest.approx(3 / in_turns_ms * 1000, rel=0.08), f"not in {step_ms + away_ms} ms"


def test_turns_last_once_they_are_taken():
    replica = in_step(64, away_ms=8.0, **ROOFLINE)
    assert replica.num_step_rows == 6 * 32
    replica.run(8000)
    assert replica.num_step_rows == 6 * 32


@pytest.mark.parametrize(
    ("count", "away_ms", "costs"),
    [
        (2, 3.5, {}),
        (64, 3.5, {}),
        (8, 2.0, {"row_ms": 0.05}),
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


def ready_after_a_pause(
    count: int, *, pause_ms: int, num_back: int = 0, wait_ms: int = 0, away_ms: int = 10
) -> BatchingDelay:
    """So many drafts of 6 rows are ready, after nothing was for so long; num_back others are away, usually for away_ms,
    and the last draft came wait_ms after the others."""
    delay = BatchingDelay(roofline(), 512)
    drafts = [Verify(number, 10, (1,) * 5) for number in range(count + num_back)]
    verdicts = [Verdict(number, 10, 5, 2, (7, 8, 9)) for number in range(count + num_back)]
    delay.took(drafts, -200 * MS)
    delay.gave(verdicts, -(away_ms + 40) * MS)
    delay.took(drafts, -40 * MS)
    delay.gave(verdicts, 0)
    delay.took(drafts[: count - 1], pause_ms * MS)
    delay.took(drafts[count - 1 : count], (pause_ms + wait_ms) * MS)
    return delay


@pytest.mark.parametrize(
    ("count", "pause_ms", "num_back", "max_rows"),
    [
        (64, 8, 0, 6 * 32),
        (61, 8, 0, 6 * 31),
        (64, 0, 0, None),  # it never stood still
        (40, 8, 12, 6 * 26),  # they will be back before the step ends: it takes half of all
        (40, 8, 16, None),  # so many take turns already
        (40, 60, 16, 6 * 20),  # they come no more
        (1, 8, 0, None),
    ],
)
def test_a_step_takes_half_of_those_who_would_be_in_step(
    count: int, pause_ms: int, num_back: int, max_rows: int | None
):
    delay = ready_after_a_pause(count, pause_ms=pause_ms, num_back=num_back)
    assert delay.max_rows(pause_ms * MS) == max_rows


def test_what_a_step_waited_is_no_time_in_which_nothing_was_ready():
    """1 ms is not worth two steps."""
    assert ready_after_a_pause(64, pause_ms=1, wait_ms=7).max_rows(8 * MS) is None
    assert ready_after_a_pause(64, pause_ms=8).max_rows(8 * MS) is not None


def test_a_step_without_verdicts_is_no_end_of_standing_still():
    delay = ready_after_a_pause(64, pause_ms=8)
    delay.gave([], 8 * MS)
    assert delay.max_rows(8 * MS) == 6 * 32


def verified(*numbers: int) -> list[Verdict]:
    return [Verdict(number, 11, 5, 2, (7, 8, 9)) for number in numbers]


def drafted(*numbers: int) -> list[Verify]:
    return [Verify(number, 11, (1,) * 5) for number in numbers]


def test_who_comes_late_to_those_that_were_left_over_has_not_left_the_target_idle():
    delay = ready_after_a_pause(64, pause_ms=8)
    delay.gave(verified(*range(32)), 20 * MS)
    delay.took(drafted(*range(32)), 28 * MS)
    assert delay.max_rows(28 * MS) is None


def test_a_target_with_a_run_to_decode_was_not_idle():
    delay = ready_after_a_pause(64, pause_ms=8)
    delay.took([Decode(100, 10, 3)], 8 * MS)
    assert delay.max_rows(8 * MS) is None, "nor will it be"
    delay.gave([*verified(*range(64)), Verdict(100, 10, 0, 0, (5,))], 20 * MS)
    delay.took(drafted(*range(64)), 28 * MS)
    delay.took([CloseSequence(100)], 28 * MS)
    assert delay.max_rows(28 * MS) is None


def test_who_came_in_the_step_before_has_not_left_the_target_idle():
    delay = ready_after_a_pause(64, pause_ms=8)
    delay.gave(verified(*range(64)), 20 * MS)
    delay.max_rows(20 * MS)  # a step of a prompt begins
    delay.took(drafted(*range(64)), 28 * MS)
    assert delay.max_rows(28 * MS) is None, "a prompt was read"


def test_a_step_without_verdicts_does_not_begin_a_pause():
    delay = ready_after_a_pause(64, pause_ms=8)
    delay.gave(verified(*range(64)), 20 * MS)
    delay.gave([], 27 * MS)  # somebody left
    delay.took(drafted(*range(64)), 28 * MS)
    assert delay.max_rows(28 * MS) == 6 * 32


@pytest.mark.parametrize("ends", ["closed", "refused"])
def test_a_pause_before_a_draft_that_was_never_verified_says_nothing(ends: str):
    delay = ready_after_a_pause(64, pause_ms=8)
    delay.gave(verified(*range(64)), 20 * MS)
    delay.took(drafted(0), 32 * MS)
    if ends == "closed":
        delay.took([CloseSequence(0)], 32 * MS)
    else:
        delay.gave(refused(0, SequenceErrorCode.STALE), 32 * MS)
    delay.took(drafted(*range(1, 64)), 3_600_000 * MS)
    assert delay.max_rows(3_600_000 * MS) is None


def test_those_who_come_after_the_step_are_not_waited_for_to_take_turns():
    """Away for 100 ms, usually; the step takes 24."""
    delay = ready_after_a_pause(40, pause_ms=8, num_back=16, away_ms=100)
    assert delay.max_rows(8 * MS) == 6 * 20


def test_what_does_not_fit_a_step_takes_turns_anyway():
    assert ready_after_a_pause(85, pause_ms=8).max_rows(8 * MS) == 6 * 43
    assert ready_after_a_pause(86, pause_ms=8).max_rows(8 * MS) is None


@pytest.mark.parametrize(("max_batch_tokens", "waits"), [(6, True), (3, False)])
def test_a_step_that_is_full_waits_for_nobody(max_batch_tokens: int, waits: bool):
    delay = BatchingDelay(flat(), max_batch_tokens)
    delay.took([Verify(1, 10, (1, 2)), Verify(2, 10, (1, 2))], 0)
    delay.gave([Verdict(1, 10, 2, 0, (5,)), Verdict(2, 10, 2, 0, (5,))], 8 * MS)
    delay.took([Verify(1, 11, (1, 2))], 9 * MS)
    assert (delay.wait_ns(9 * MS) > 0) is waits


def test_a_prefill_alone_may_wait_for_who_is_away():
    delay = BatchingDelay(flat(), 512)
    delay.took([Verify(1, 10, (1, 2))], 0)
    delay.gave([Verdict(1, 10, 2, 0, (5,))], 8 * MS)
    delay.took([OpenSequence(2, (1, 2, 3), SamplingParams())], 9 * MS)
    assert 0 < delay.wait_ns(9 * MS) < 8 * MS


def test_a_sequence_that_never_comes_back_holds_up_few_steps():
    replica = Replica(delays=True)
    replica.add_speculating(0, 2.0)
    replica.add_speculating(1, 2.0)
    replica.run(500)
    replica._away_ns[1] = 1e6  # ms: its client has stopped to read
    replica.run(510)
    steps = replica.num_steps
    replica.run(2510)
    assert replica.num_steps - steps > 0.95 * 2000 / (8 + 2.0)


@pytest.mark.parametrize(("num_fast", "num_paused"), [(4, 16), (8, 32), (8, 64)])
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


def test_what_is_closed_is_forgotten():
    delay = BatchingDelay(flat(), 512)
    delay.took([Verify(1, 10, (1, 2)), Verify(2, 10, (1, 2))], 0)
    delay.gave(
        [Verdict(1, 10, 2, 0, (5,)), Verdict(2, 10, 2, 0, (5,))],
        8 * MS,
    )
    delay.took([Verify(1, 11, (1, 2))], 9 * MS)
    assert delay.wait_ns(9 * MS) > 0
    delay.took([CloseSequence(2)], 9 * MS)
    assert delay.wait_ns(9 * MS) == 0


def test_a_wait_is_thought_over_when_one_that_was_waited_for_is_closed():
    delay = known_to_be_away(3)
    delay.took([Verify(3, 10, (1, 2))], -6000 * MS)
    # Its client has paused.
    delay.gave([Verdict(3, 10, 2, 0, (5,))], -5000 * MS)
    delay.took([Verify(2, 10, (1, 2))], MS)
    assert delay.wait_ns(MS) > 0
    delay.took([CloseSequence(1)], MS)
    assert delay.wait_ns(MS) == 0


def test_nobody_waits_for_a_sequence_whose_draft_came_to_nothing_in_its_run():
    delay = BatchingDelay(flat(), 512)
    delay.took([Decode(1, 10, 50)], 0)
    delay.gave([Verdict(1, 10, 0, 0, (5,))], 8 * MS)
    delay.took([Verify(1, 10, (1, 2, 3))], 9 * MS)
    delay.gave([Verdict(1, 11, 0, 0, (6,))], 16 * MS)
    assert delay.wait_ns(16 * MS) == 0
    delay.took([Verify(1, 12, (1, 2, 3))], 17 * MS)
    delay.gave([Verdict(1, 12, 3, 1, (1, 6))], 24 * MS)
    delay.took([Verify(2, 10, (1,))], 24 * MS)
    assert delay.wait_ns(24 * MS) > 0, "this one ended the run: it comes back with its next draft"


@pytest.mark.parametrize(("count", "away_ms"), [(20, 4.5), (20, 6.0), (24, 4.5), (40, 4.5)])
def test_waiting_never_loses_what_taking_turns_would_give(count: int, away_ms: float):
    """Groups that take turns hide their drafts behind each other's steps: drawn together they would wait for them."""
    together, apart = (
        Replica(delays=delays, row_ms=0.1, is_roofline=True, away=random.Random(1)) for delays in (True, False)
    )
    for replica in (together, apart):
        for index in range(count):
            replica.add_speculating(index, away_ms, starts_ms=1.3 * index)
        replica.run(4000)
    assert sum(together.num_tokens.values()) > 0.99 * sum(apart.num_tokens.values())


@pytest.mark.parametrize("away_ms", [14.0, 20.0, 40.0, 100.0])
def test_nobody_waits_for_those_who_are_away_for_longer_than_a_step(away_ms: float):
    """They miss one step of several; one that decodes plainly, or comes back soon, would lose all it has."""
    for fast in ("plain", "soon"):
        together, apart = (Replica(delays=delays) for delays in (True, False))
        for replica in (together, apart):
            for index in range(8 if fast == "plain" else 4):
                replica.add_speculating(index, away_ms, starts_ms=3.0 * index)
            if fast == "plain":
                replica.add_plain(1000)
            else:
                replica.add_speculating(1000, 2.0)
            replica.run(4000)
        assert sum(together.num_tokens.values()) > 0.97 * sum(apart.num_tokens.values()), fast
        assert together.num_tokens[1000] > 0.97 * apart.num_tokens[1000], fast


@pytest.mark.parametrize(("count", "long_ms", "short_share", "gain"), [(8, 12.0, 0.5, 1.15), (2, 12.0, 0.8, 1.25)])
def test_a_draft_that_is_often_there_at_once_is_waited_for_whatever_its_other_time_is(
    count: int, long_ms: float, short_share: float, gain: float
):
    together, apart = (
        Replica(delays=delays, away=random.Random(1), short_share=short_share) for delays in (True, False)
    )
    for replica in (together, apart):
        for index in range(count):
            replica.add_speculating(index, long_ms, starts_ms=3.0 * index)
        replica.run(5000)
    assert sum(together.num_tokens.values()) > gain * sum(apart.num_tokens.values())


def test_one_that_decodes_plainly_waits_little_for_drafts_that_are_there_at_once_or_after_several_steps():
    together, apart = (Replica(delays=delays, away=random.Random(1)) for delays in (True, False))
    for replica in (together, apart):
        replica.add_plain(1000)
        for index in range(8):
            replica.add_speculating(index, 40.0, starts_ms=3.0 * index)
        replica.run(3000)
    assert together.num_tokens[1000] > 0.85 * apart.num_tokens[1000]
    assert sum(together.num_tokens.values()) > 0.95 * sum(apart.num_tokens.values())


def test_who_comes_back_just_after_the_next_step_began_is_waited_for():
    """It would wait for the one after that. Who waits for nobody that is away for longer than a step gets 2,472 tokens,
    who waits for nobody at all 2,001."""
    replica = Replica(delays=True)
    for index in range(4):
        replica.add_speculating(index, 8.5, starts_ms=3.0 * index)
    replica.run(4000)
    assert sum(replica.num_tokens.values()) > 2850


def known_to_be_away(away_ms: int) -> BatchingDelay:
    """Sequence 1 is away since 0 ms, usually for so long."""
    delay = BatchingDelay(flat(), 512)
    now_ns = away_ms * MS - 20 * (away_ms + 8) * MS
    for _ in range(20):
        delay.took([Verify(1, 10, (1, 2))], now_ns)
        now_ns += 8 * MS
        delay.gave([Verdict(1, 10, 2, 0, (5,))], now_ns)
        now_ns += away_ms * MS
    return delay


def test_a_prefill_does_not_wait_for_a_client_that_reads_slowly():
    delay = known_to_be_away(3000)
    delay.took([OpenSequence(2, (1, 2, 3), SamplingParams())], MS)
    assert delay.wait_ns(MS) == 0


REFUSALS = [SequenceErrorCode.STALE, SequenceErrorCode.INVALID]


def refused(sequence_id: int, code: SequenceErrorCode) -> list[SequenceError]:
    return [SequenceError(sequence_id, code, "")]


# One that is away for 5 ms is worth waiting for beside one that decodes plainly, not beside two.


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_command_ends_no_run(code: SequenceErrorCode):
    delay = known_to_be_away(5)
    delay.took([Decode(2, 10, 50), Decode(3, 10, 50)], 0)
    delay.gave(refused(2, code), 0)
    assert delay.wait_ns(0) == 0
    delay.gave(refused(2, SequenceErrorCode.UNKNOWN_SEQUENCE), 0)
    assert delay.wait_ns(0) > 0


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_draft_is_not_in_the_step(code: SequenceErrorCode):
    delay = known_to_be_away(5)
    delay.took([Decode(3, 10, 50), Verify(2, 10, (1, 2))], 0)
    assert delay.wait_ns(0) == 0
    delay.gave(refused(2, code), 0)
    assert delay.wait_ns(0) > 0


def test_a_wait_is_thought_over_when_others_come_to_wait_too():
    delay = known_to_be_away(5)
    delay.took([Verify(2, 10, (1, 2))], MS)
    assert delay.wait_ns(MS) > 0
    delay.took([Decode(number, 10, 50) for number in range(10, 40)], MS)
    assert delay.wait_ns(MS) == 0


def test_one_that_fell_behind_gets_no_step_of_its_own():
    """15 in one step and one in the next would take longer than all in one, though rows cost most."""
    replica = Replica(delays=True, row_ms=0.1, is_roofline=True)
    for index in range(16):
        replica.add_speculating(index, 4.5, starts_ms=5.0 * (index == 15))
    replica.run(4000)
    assert replica.tokens_per_s(0) > 0.95 * 3 / ((0.1 * 6 * 16 + 4.5) / 1000)


@pytest.mark.parametrize("count", [2, 4])
def test_drafts_made_ahead_for_some_rounds_only_do_not_bring_sequences_out_of_step(count: int):
    replica = Replica(delays=True, away=random.Random(1))
    for index in range(count):
        replica.add_speculating(index, 6.0, starts_ms=3.0 * index)
    replica.run(8000)
    # In step, a round takes the longest of their absences: 6 ms, unless all drafts were there at once.
    longest_ms = 6.0 - 4.5 * 0.5**count
    assert replica.tokens_per_s(0) > 0.97 * 3 / ((8 + longest_ms) / 1000)
