"""Whether `auto` drafts ahead where that is faster: an emulated 70B in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.emulation.profiles import RooflineCost, load_profile
from tests.support.simulated_stack.placed_stack import PlacedStack, Way
from tests.support.simulated_stack.steady_state import steady_tokens_per_s

PROFILE = load_profile("h100-70b-tp4")
K, NUM_TOKENS = 4, 1200


@pytest.mark.parametrize("one_way_s", [0.0002, 0.002])
@pytest.mark.parametrize("name", ["EAGLE-3 head", "1B model"])
def test_auto_drafts_ahead_where_rounds_get_shorter(name: str, one_way_s: float) -> None:
    way = Way(drafter=PROFILE.drafter(name), target_one_way_s=one_way_s, draft_one_way_s=one_way_s)
    off, on, auto = (
        steady_tokens_per_s(PlacedStack(PROFILE, replace(way, draft_ahead=setting)), "on", K, 1, NUM_TOKENS)
        for setting in ("off", "on", "auto")
    )
    assert on > 1.2 * off
    assert auto > 0.93 * on


def test_auto_leaves_it_where_drafts_come_too_late() -> None:
    """A pass as long as a step: what is drafted ahead is there long after the target's verdict."""
    slow = replace(PROFILE.drafter("EAGLE-3 head"), cost=RooflineCost(weights_s=0.012, token_s=0.0))
    off, auto = (
        steady_tokens_per_s(PlacedStack(PROFILE, Way(drafter=slow, draft_ahead=setting)), "on", 2, 1, NUM_TOKENS)
        for setting in ("off", "auto")
    )
    assert auto > 0.95 * off
