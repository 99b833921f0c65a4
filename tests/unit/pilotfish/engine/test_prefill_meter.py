"""A prefill is charged what it adds to a plain step, whoever speculates beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.engine.prefill_meter import PrefillMeter

MS = 1e6
NUM_SEQUENCES = 16


def roofline(num_rows: int) -> float:
    return max(8.0, 0.1 * num_rows) * MS


def linear(num_rows: int) -> float:
    """Of a processor that is bound by arithmetic from the first row on."""
    return (2 + 1.0 * num_rows) * MS


def meter(step_ns: Callable[[int], float]) -> PrefillMeter:
    """Knows plain steps, steps of drafts, and large ones."""
    subject = PrefillMeter()
    for num_rows in (NUM_SEQUENCES, 6 * NUM_SEQUENCES):
        subject.add(num_rows, 0, NUM_SEQUENCES, step_ns(num_rows))
    subject.add(512, 512 - NUM_SEQUENCES, NUM_SEQUENCES, step_ns(512))
    return subject


def charge(subject: PrefillMeter, step_ns: Callable[[int], float], num_prefill_rows: int, rows_each: int) -> float:
    num_rows = num_prefill_rows + rows_each * NUM_SEQUENCES
    subject.add(num_rows, num_prefill_rows, NUM_SEQUENCES, step_ns(num_rows))
    return subject.step_ns / MS


def test_where_nobody_decodes_the_whole_step_is_a_prefill() -> None:
    subject = PrefillMeter()
    subject.add(512, 512, 0, roofline(512))
    assert (subject.step_ns, subject.total_ns) == (roofline(512), roofline(512))
    subject.add(NUM_SEQUENCES, 0, NUM_SEQUENCES, roofline(16))
    assert (subject.step_ns, subject.total_ns) == (0, roofline(512))


@pytest.mark.parametrize(("num_prefill_rows", "expected_ms"), [(5, 0.0), (64, 0.0), (84, 2.0), (484, 42.0)])
def test_it_is_charged_what_it_adds_to_a_plain_step(num_prefill_rows: int, expected_ms: float) -> None:
    """Nothing as long as reading the weights takes longer."""
    subject = meter(roofline)
    before = subject.total_ns
    assert charge(subject, roofline, num_prefill_rows, 1) == pytest.approx(expected_ms)
    assert (subject.total_ns - before) / MS == pytest.approx(expected_ms)


@pytest.mark.parametrize("step_ns", [roofline, linear])
@pytest.mark.parametrize("num_prefill_rows", [5, 84, 200, 400])
def test_the_charge_is_the_same_beside_drafts(step_ns: Callable[[int], float], num_prefill_rows: int) -> None:
    """So that a plain token beside it costs the same, and a round what its rows have no room for any more."""
    subject = meter(step_ns)
    plain = charge(subject, step_ns, num_prefill_rows, 1)
    assert charge(subject, step_ns, num_prefill_rows, 6) == pytest.approx(plain, abs=0.4)


def test_before_there_was_a_step_without_a_prefill_all_rows_are_alike() -> None:
    subject = PrefillMeter()
    subject.add(500, 484, 16, 50 * MS)
    assert subject.step_ns / MS == pytest.approx(48.4)


@pytest.mark.parametrize("num_plain_steps", [0, 1, 3])
def test_a_plain_step_that_was_slow_once_is_not_believed_where_drafts_take_less(num_plain_steps: int) -> None:
    """As the first one is, while the engine warms up."""
    subject = PrefillMeter()
    for step_ns in (500 * MS, *[8 * MS] * num_plain_steps):
        subject.add(1, 0, 1, step_ns)
    subject.add(512, 500, 1, roofline(512))
    for _ in range(10):
        subject.add(5, 0, 1, 8 * MS)
    subject.add(405, 400, 1, roofline(405))
    assert subject.step_ns / MS == pytest.approx(40.5 - 0.4 - 8)


def test_prefills_alone_do_not_tell_what_a_row_takes() -> None:
    """On a GPU such a step is told before it has ended, and the next one has its time as well."""
    subject = meter(roofline)
    subject.add(512, 512, 0, 0.1 * MS)
    assert charge(subject, roofline, 400, 6) == pytest.approx(charge(meter(roofline), roofline, 400, 6))


def test_steps_that_take_no_time_are_charged_nothing() -> None:
    """As those of an emulated engine without costs."""
    subject = meter(lambda _: 0.0)
    assert charge(subject, lambda _: 0.0, 100, 6) == 0
    assert subject.total_ns == 0


def test_a_step_that_failed_is_charged_nothing() -> None:
    subject = meter(roofline)
    charge(subject, roofline, 484, 1)
    before = subject.total_ns
    subject.failed()
    assert (subject.step_ns, subject.total_ns) == (0, before)


def test_a_stalled_step_is_charged_once() -> None:
    subject = meter(roofline)
    subject.add(500, 484, 16, 1000 * MS)
    assert subject.step_ns / MS == pytest.approx(992)
    assert charge(subject, roofline, 484, 1) == pytest.approx(42.0)
    assert charge(subject, roofline, 484, 6) == pytest.approx(42.0)
