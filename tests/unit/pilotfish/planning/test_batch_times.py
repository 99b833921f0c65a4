from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.planning.batch_times import BatchTimes
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import Drafting, Placement


def test_formulas_are_corrected_where_drafters_are_apart(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, Drafting(), handling_s=1e-4)
    times = BatchTimes(model, stepwise=True)
    # Two are gathered: in step, but for the handling of messages, where turns would take 1.6 times as long.
    assert 1.0 < times.correction(2, 4) < 1.15
    assert times.token_s(2, 4) == pytest.approx(model.token_s(2, 4) * times.correction(2, 4))
    assert times.correction(2, 0) == 1
    between = [times.correction(batch, 4) for batch in (8, 12, 16)]
    assert min(between[0], between[2]) <= between[1] <= max(between[0], between[2])
    colocated = DecodingModel(profile, Drafting(), placement=Placement.COLOCATED, handling_s=1e-4)
    assert BatchTimes(colocated, stepwise=True).token_s(8, 4) == colocated.token_s(8, 4)


@pytest.mark.parametrize("stepwise", [False, True])
def test_the_fastest_length_is_used_and_never_one_that_is_slower_than_none(
    make_profile: Callable[..., HardwareProfile], profile: HardwareProfile, stepwise: bool
) -> None:
    times = BatchTimes(DecodingModel(profile, Drafting(max_draft_tokens=4), handling_s=1e-4), stepwise=stepwise)
    for batch in (1, 2, 16, 64):
        best = times.policy_k(batch)
        assert times.token_s(batch, best) <= 1.03 * min(times.token_s(batch, k) for k in range(5))
    assert times.token_s(48, times.policy_k(48)) <= times.token_s(48, 0)


def test_fixed_and_limited_lengths(profile: HardwareProfile) -> None:
    fixed = BatchTimes(DecodingModel(profile, Drafting(fixed_draft_tokens=3)), stepwise=False)
    assert fixed.policy_k(60) == 3
    best = BatchTimes(DecodingModel(profile, Drafting()), stepwise=False)
    ranges = Drafting(per_batch_size=((1, 4, 1), (5, 8, 0)))
    limited = BatchTimes(DecodingModel(profile, ranges), stepwise=False)
    assert best.policy_k(1) > 1
    assert [limited.policy_k(batch) for batch in (1, 4, 5, 8)] == [1, 1, 0, 0]
    assert limited.policy_k(9) == best.policy_k(9)


def test_nobody_drafts_without_drafters(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, Drafting(fixed_draft_tokens=3), placement=Placement.NONE)
    assert BatchTimes(model, stepwise=False).policy_k(1) == 0
