"""Until when an answer counts."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.batch_rows import BatchStep
from pilotfish.integrations.vllm.question import Question
from pilotfish.integrations.vllm.step import DraftingStep

SENT_S, DEADLINE_S = 100.0, 0.5
IN_TIME_S, LATE_S = 100.5, 100.6


def question(*, is_timed: bool = True, is_waited_for: bool = False) -> Question:
    step = DraftingStep(BatchStep((), ()), 4, DEADLINE_S, is_waited_for=is_waited_for)
    return Question(3, 0, step, SENT_S, is_timed, is_waited_for)


def test_an_answer_is_timely_up_to_the_deadline_of_its_step() -> None:
    assert question().is_timely(IN_TIME_S)
    assert not question().is_timely(LATE_S)


@pytest.mark.parametrize(
    ("asked", "now_s", "is_pending"),
    [
        (question(), IN_TIME_S, True),
        (question(), LATE_S, False),
        (question(is_waited_for=True), IN_TIME_S, False),  # its step is over once there is another one
        (question(is_timed=False), IN_TIME_S, False),  # the prompt is read first: no deadline tells
    ],
)
def test_only_what_is_timed_and_not_waited_for_may_come_after_its_step(asked, now_s, is_pending) -> None:
    assert asked.is_pending(now_s) is is_pending
