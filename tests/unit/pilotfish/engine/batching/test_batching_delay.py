"""What a replica waits for, and when it takes half of what is ready, command by command."""

from typing import Any

import pytest
from msgspec.structs import replace

from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import CloseSequence, Decode, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.types import SamplingParams, SequenceErrorCode

MS = 1_000_000


def flat(step_ms: float = 8.0) -> StepCosts:
    """Every step takes the same."""
    return StepCosts.sampled(lambda _sequences, _rows: step_ms / 1e3, 512)


def roofline(row_ms: float = 0.1, step_ms: float = 8.0) -> StepCosts:
    """The larger of the two."""
    return StepCosts.sampled(lambda _sequences, rows: max(step_ms, row_ms * rows) / 1e3, 512)


def verified(*numbers: int, base: int = 11) -> list[Verdict]:
    return [Verdict(number, base, 5, 2, (7, 8, 9)) for number in numbers]


def drafted(*numbers: int, base: int = 11) -> list[Verify]:
    return [Verify(number, base, (1,) * 5) for number in numbers]


def refused(sequence_id: int, code: SequenceErrorCode) -> list[SequenceError]:
    return [SequenceError(sequence_id, code, "")]


def ready_after_a_pause(
    count: int, *, pause_ms: int = 8, num_back: int = 0, wait_ms: int = 0, away_ms: int = 10
) -> BatchingDelay:
    """So many drafts of 6 rows are ready, after nothing was for so long; num_back others are away, usually for away_ms,
    and the last draft came wait_ms after the others."""
    delay = BatchingDelay(roofline(), 512)
    everybody = range(count + num_back)
    delay.took(drafted(*everybody), -200 * MS)
    delay.gave(verified(*everybody), -(away_ms + 40) * MS)
    delay.took(drafted(*everybody), -40 * MS)
    delay.gave(verified(*everybody), 0)
    delay.took(drafted(*range(count - 1)), pause_ms * MS)
    delay.took(drafted(count - 1), (pause_ms + wait_ms) * MS)
    return delay


@pytest.mark.parametrize(
    ("count", "more", "max_rows"),
    [
        (64, {}, 6 * 32),
        (61, {}, 6 * 31),
        (64, {"pause_ms": 0}, None),  # it never stood still
        (64, {"pause_ms": 1, "wait_ms": 7}, None),  # what a step waited is no pause
        (40, {"num_back": 12}, 6 * 26),  # they will be back before the step ends: it takes half of all
        (40, {"num_back": 16}, None),  # so many take turns already
        (40, {"num_back": 16, "pause_ms": 60}, 6 * 20),  # they come no more
        (40, {"num_back": 16, "away_ms": 100}, 6 * 20),  # they come after the step
        (1, {}, None),
        (85, {}, 6 * 43),
        (86, {}, None),  # what does not fit a step takes turns anyway
    ],
)
def test_a_step_takes_half_of_those_who_would_be_in_step(count: int, more: dict[str, int], max_rows: int | None):
    delay = ready_after_a_pause(count, **more)
    assert delay.max_rows((more.get("pause_ms", 8) + more.get("wait_ms", 0)) * MS) == max_rows


ALL, HALF = range(64), range(32)


@pytest.mark.parametrize(
    ("happens", "max_rows"),
    [
        ([("gave", [], 8)], 6 * 32),
        ([("gave", verified(*HALF), 20), ("took", drafted(*HALF), 28)], None),
        ([("took", [Decode(100, 10, 3)], 8)], None),
        (
            [
                ("took", [Decode(100, 10, 3)], 8),
                ("gave", [*verified(*ALL), Verdict(100, 10, 0, 0, (5,))], 20),
                ("took", [*drafted(*ALL), CloseSequence(100)], 28),
            ],
            None,
        ),
        ([("gave", verified(*ALL), 20), ("begins", [], 20), ("took", drafted(*ALL), 28)], None),
        ([("gave", verified(*ALL), 20), ("gave", [], 27), ("took", drafted(*ALL), 28)], 6 * 32),
        *(
            (
                [("gave", verified(*ALL), 20), ("took", drafted(0), 32), ends, ("took", drafted(*range(1, 64)), 9999)],
                None,
            )
            for ends in (("took", [CloseSequence(0)], 32), ("gave", refused(0, SequenceErrorCode.STALE), 32))
        ),
    ],
    ids=[
        "a step without verdicts",
        "late to those that were left over",
        "a run to decode",
        "a run was decoded",
        "a prompt was read",
        "a step without verdicts begins no pause",
        "a draft that was closed",
        "a draft that was refused",
    ],
)
def test_only_a_pause_of_the_target_makes_drafts_take_turns(
    happens: list[tuple[str, list[Any], int]], max_rows: int | None
):
    delay = ready_after_a_pause(64)
    for what, items, at_ms in happens:
        if what == "begins":
            delay.max_rows(at_ms * MS)
        elif what == "took":
            delay.took(items, at_ms * MS)
        else:
            delay.gave(items, at_ms * MS)
    assert delay.max_rows(happens[-1][2] * MS) == max_rows


@pytest.mark.parametrize(("max_batch_tokens", "waits"), [(6, True), (3, False)])
def test_a_step_that_is_full_waits_for_nobody(max_batch_tokens: int, waits: bool):
    delay = BatchingDelay(flat(), max_batch_tokens)
    delay.took([Verify(1, 10, (1, 2)), Verify(2, 10, (1, 2))], 0)
    delay.gave([Verdict(1, 10, 2, 0, (5,)), Verdict(2, 10, 2, 0, (5,))], 8 * MS)
    delay.took([Verify(1, 11, (1, 2))], 9 * MS)
    assert (delay.wait_ns(9 * MS) > 0) is waits


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


@pytest.mark.parametrize(("away_ms", "waits"), [(3, True), (3000, False)])
def test_a_prefill_waits_for_who_is_back_soon(away_ms: int, waits: bool):
    delay = known_to_be_away(away_ms)
    delay.took([OpenSequence(2, (1, 2, 3), SamplingParams())], MS)
    assert (0 < delay.wait_ns(MS) < 8 * MS) is waits


def test_who_goes_on_is_not_waited_for():
    delay = BatchingDelay(flat(), 512)
    delay.took(drafted(1, 2), 0)
    delay.gave([replace(verdict, num_next_draft_tokens=5) for verdict in verified(1, 2)], 8 * MS)
    assert delay.wait_ns(8 * MS) == 0
    assert delay.max_rows(8 * MS) is None
    delay.gave([replace(verified(1, base=14)[0], num_next_draft_tokens=5), *verified(2, base=14)], 16 * MS)
    assert delay.wait_ns(16 * MS) > 0


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


@pytest.mark.parametrize("code", [SequenceErrorCode.STALE, SequenceErrorCode.INVALID])
def test_a_refused_command_ends_no_run_and_a_refused_draft_is_in_no_step(code: SequenceErrorCode):
    delay = known_to_be_away(5)
    delay.took([Decode(2, 10, 50), Decode(3, 10, 50)], 0)
    delay.gave(refused(2, code), 0)
    # One that is away for 5 ms is worth waiting for beside one that decodes plainly, not beside two.
    assert delay.wait_ns(0) == 0
    delay.gave(refused(2, SequenceErrorCode.UNKNOWN_SEQUENCE), 0)
    assert delay.wait_ns(0) > 0
    delay.took([Verify(2, 10, (1, 2))], 0)
    delay.gave([], 0)
    assert delay.wait_ns(0) == 0
    delay.gave(refused(2, code), 0)
    assert delay.wait_ns(0) > 0


def test_a_wait_is_thought_over_when_others_come_to_wait_too():
    delay = known_to_be_away(5)
    delay.took([Verify(2, 10, (1, 2))], MS)
    assert delay.wait_ns(MS) > 0
    delay.took([Decode(number, 10, 50) for number in range(10, 40)], MS)
    assert delay.wait_ns(MS) == 0
