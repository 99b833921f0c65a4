"""One step's drafts between two threads."""

from __future__ import annotations

import threading

from pilotfish.integrations.vllm.batch_rows import BatchStep, RowStep
from pilotfish.integrations.vllm.step import DraftingStep

FOREVER_S = 30.0


def step_of(num_rows: int) -> DraftingStep:
    rows = tuple(RowStep(slot + 1, (1, 2, 3), 2, 1) for slot in range(num_rows))
    return DraftingStep(BatchStep(rows, frozenset()))


def test_it_ends_with_the_last_answer_that_is_waited_for() -> None:
    step = step_of(3)

    def answer() -> None:
        assert step.answer(2, (9,))
        step.expect([0, 1])
        assert step.answer(0, (5, 6))
        assert step.answer(1, ())

    thread = threading.Thread(target=answer)
    thread.start()
    assert step.wait(FOREVER_S) == [[5, 6], [], [9]]
    thread.join()
    assert step.num_missing == 0


def test_after_the_deadline_it_has_what_came_and_takes_no_more() -> None:
    step = step_of(2)
    step.expect([0, 1])
    step.answer(1, (7,))
    assert step.wait(0.0) == [[], [7]]
    assert step.num_missing == 1
    assert not step.answer(0, (8,))
    assert step.wait(0.0) == [[], [7]]
