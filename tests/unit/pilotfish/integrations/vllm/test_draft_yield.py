"""What drafts of each length yield a row."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.draft_yield import DraftYield


def test_a_length_yields_what_it_was_measured_to() -> None:
    drafts = DraftYield(8)
    for _ in range(100):
        drafts.add(8, [(6, 4), (0, 0)])
    assert drafts.num_rows == 200
    assert drafts.num_drafted(8) == pytest.approx(3, abs=0.2)
    assert drafts.num_accepted(8) == pytest.approx(2, abs=0.2)


def test_long_drafts_tell_what_short_ones_would_yield() -> None:
    drafts = DraftYield(8)
    drafts.add(8, [(6, 4), (0, 0)] * 50)
    assert drafts.num_accepted(2) == pytest.approx(1, abs=0.1)
    assert drafts.num_drafted(1) == pytest.approx(0.5)


def test_what_was_not_asked_for_lately_is_what_came_before_it() -> None:
    drafts = DraftYield(8)
    drafts.add(8, [(8, 0)] * 100)
    for _ in range(100):
        drafts.add(2, [(2, 2)] * 8)
    assert drafts.num_accepted(8) > 7


def test_before_any_row_nothing_is_known() -> None:
    assert DraftYield(8).num_rows == 0
    assert DraftYield(8).num_accepted(8) == 0.0
