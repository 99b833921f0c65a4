from __future__ import annotations

from orchestrator.control.reasons import Reason


def test_identifiers_are_an_interface() -> None:
    """Dashboards and clients know them."""
    assert {reason.value for reason in Reason} >= {
        *("fastest", "requested", "probe", "first_token", "last_token", "measuring", "mode_off", "no_draft_tokens"),
        *("short_output", "no_drafter", "draft_pool_saturated", "drafter_failed", "batch_size", "acceptance_floor"),
        *("load", "round_time", "acceptance"),
    }
