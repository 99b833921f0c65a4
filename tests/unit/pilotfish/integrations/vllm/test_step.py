"""One step's drafts between two threads."""

from __future__ import annotations

import threading
import time

from pilotfish.integrations.vllm.batch_rows import BatchStep, RowStep
from pilotfish.integrations.vllm.step import DraftingStep

FOREVER_S = 30.0


def step_of(num_rows: int, deadline_s: float = FOREVER_S, *, is_waited_for: bool = True) -> DraftingStep:
    rows = tuple(RowStep(slot + 1, 3, (1, 2, 3), 2, 1) for slot in range(num_rows))
    return DraftingStep(BatchStep(rows, ()), 4, deadline_s, is_waited_for=is_waited_for)


def test_it_ends_with_the_last_answer_that_is_waited_for() -> None:
    step = step_of(3)

    def answer() -> None:
        assert step.answer(2, (9,))
        step.expect([0, 1])
        assert step.answer(0, (5, 6))
        assert step.answer(1, ())

    thread = threading.Thread(target=answer)
    thread.start()
    assert step.wait() == [[5, 6], [], [9]]
    thread.join()
    assert step.num_missing == 0


def test_it_does_not_wait_where_nothing_will_come() -> None:
    step = step_of(2)
    step.expect([])
    assert step.wait() == [[], []]
    assert not step.is_missed


def test_after_the_deadline_it_has_what_came_and_takes_no_more() -> None:
    step = step_of(2, deadline_s=0.0)
    step.expect([0, 1])
    step.answer(1, (7,))
    assert step.wait() == [[], [7]]
    assert step.num_missing == 1
    assert step.is_missed
    assert not step.answer(0, (8,))
    assert step.wait() == [[], [7]]


def test_a_row_that_is_released_is_not_waited_for() -> None:
    step = step_of(2)
    step.expect([0, 1])
    step.answer(0, (7,))
    step.release(1)
    assert step.wait() == [[7], []]
    assert not step.is_missed


def test_a_probe_takes_no_drafts_and_tells_when_they_came() -> None:
    step = step_of(2, is_waited_for=False)
    step.expect([0, 1])
    now_s = time.perf_counter()
    assert not step.answer(0, (7,))
    assert step.was_in_time(now_s) is None
    assert not step.answer(1, (7,))
    assert step.was_in_time(now_s) is True
    assert step.was_in_time(now_s + 2 * FOREVER_S) is True


def test_a_probe_whose_answers_do_not_come_is_late() -> None:
    step = step_of(1, is_waited_for=False)
    step.expect([0])
    assert step.was_in_time(time.perf_counter() + 2 * FOREVER_S) is False


def test_a_probe_that_came_too_late_is_late() -> None:
    step = step_of(1, deadline_s=-FOREVER_S, is_waited_for=False)
    step.expect([0])
    step.answer(0, (7,))
    assert step.was_in_time(time.perf_counter()) is False


def test_a_probe_of_rows_that_ended_tells_nothing() -> None:
    step = step_of(1, is_waited_for=False)
    step.expect([0])
    step.release(0)
    assert step.is_complete
    assert step.was_in_time(time.perf_counter()) is None
