from __future__ import annotations

import pytest

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN, Drafting
from pilotfish.planning.rates import ReplicaRates


def test_plain_rates_are_those_of_steps(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    assert rates.num_draft_tokens == [0] * 65
    for batch in (1, 64):
        assert rates.token_s[batch] == profile.target.step_s(batch, batch)


def test_a_prompt_takes_as_many_steps_as_it_has_chunks(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    assert rates.prefill_s(0, 512) == pytest.approx(512e-4)
    assert rates.prefill_s(0, 100) == pytest.approx(100e-4)
    assert rates.prefill_s(0, 1024) == pytest.approx(2 * 512e-4)


def test_decoding_slows_down_by_the_length_of_mixed_steps(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    duration_s = rates.prefill_s(10, 502)
    assert duration_s == pytest.approx(512e-4)
    assert rates.slowdown(10, 502, duration_s) == pytest.approx(512e-4 / 0.008)
    assert rates.slowdown(0, 502, duration_s) == 1


def test_prompts_keep_a_share_of_full_steps(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, Drafting(fixed_draft_tokens=7), max_batch_tokens=400))
    assert rates.num_rows[64] == 512
    assert rates.num_chunk_tokens[64] == 100
    # Rows that found no room wait for the next step.
    assert rates.slowdown(64, 100, rates.prefill_s(64, 100)) > 512 / 300 * 0.04 / rates.step_s[64] * 0.99
