from __future__ import annotations

from orchestrator.control.decision import Decision
from orchestrator.control.limitation import Limitation
from orchestrator.control.reasons import Reason


def test_a_request_that_may_speculate_has_none() -> None:
    subject = Limitation(None)
    subject.note(Decision(4, 1, Reason.FASTEST))
    assert subject.reason is None
    assert subject.text == ""


def test_one_that_never_does_says_why() -> None:
    assert Limitation(Reason.SHORT_OUTPUT).text == Reason.SHORT_OUTPUT.text


def test_details_say_more_and_belong_to_their_decision() -> None:
    subject = Limitation(None)
    subject.note(Decision(0, 16, Reason.NO_DRAFTER, details="there is no draft replica"))
    assert (subject.reason, subject.text) == (Reason.NO_DRAFTER, "there is no draft replica")
    subject.note(Decision(0, 16, Reason.LOAD))
    assert (subject.reason, subject.text) == (Reason.LOAD, Reason.LOAD.text)


def test_a_failure_is_told_until_something_else_limits() -> None:
    subject = Limitation(None)
    subject.note_failure("a proposal missed its deadline")
    subject.note(Decision(4, 1, Reason.FASTEST))
    assert (subject.reason, subject.text) == (Reason.DRAFTER_FAILED, "a proposal missed its deadline")
    subject.note(Decision(0, 1, Reason.BATCH_SIZE))
    assert subject.text == Reason.BATCH_SIZE.text
