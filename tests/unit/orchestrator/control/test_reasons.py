from __future__ import annotations

from orchestrator.control.reasons import Limitation, Reason

DETAILS = "there is no draft replica"


def test_every_reason_has_a_sentence() -> None:
    assert all(reason.text for reason in Reason)
    assert len({reason.text for reason in Reason}) == len(Reason)


def test_identifiers_are_an_interface() -> None:
    """Dashboards and clients know them."""
    assert {reason.value for reason in Reason} >= {
        *("fastest", "requested", "probe", "first_token", "last_token", "measuring", "mode_off", "no_draft_tokens"),
        *("short_output", "no_drafter", "draft_pool_saturated", "drafter_failed", "batch_size", "acceptance_floor"),
        *("load", "round_time", "acceptance"),
    }


def test_one_that_never_speculates_says_why() -> None:
    assert Limitation(Reason.SHORT_OUTPUT).text == Reason.SHORT_OUTPUT.text


def test_the_latest_limitation_is_told_with_its_own_details() -> None:
    limitation = Limitation(None)
    limitation.note(Reason.NO_DRAFTER, DETAILS)
    limitation.note(Reason.FASTEST, "")
    assert (limitation.reason, limitation.text) == (Reason.NO_DRAFTER, DETAILS)
    limitation.note(Reason.LOAD, "")
    assert (limitation.reason, limitation.text) == (Reason.LOAD, Reason.LOAD.text)
