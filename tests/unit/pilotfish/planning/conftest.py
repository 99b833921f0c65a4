"""Profiles whose arithmetic fits into a head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pilotfish.emulation.profiles import HardwareProfile, RooflineCost

ProfileMaker = Callable[..., HardwareProfile]


@pytest.fixture
def make_profile() -> ProfileMaker:
    """A target of 8 ms a step and a drafter of 0.5 ms, both bound by memory; keywords change it."""

    def make(**changes: Any) -> HardwareProfile:
        values: dict[str, Any] = {
            "name": "test",
            "description": "for tests",
            "target": RooflineCost(weights_s=0.008, token_s=0.0),
            "draft": RooflineCost(weights_s=0.0005, token_s=0.0),
            "target_gpus": 4,
            "draft_gpus": 1,
            "kv_cache_tokens": 1 << 20,
            "draft_kv_cache_tokens": 1 << 20,
            "max_sequences": 64,
            "max_batch_tokens": 512,
            "max_context_tokens": 1 << 17,
        }
        return HardwareProfile(**(values | changes))

    return make


@pytest.fixture
def profile(make_profile: ProfileMaker) -> HardwareProfile:
    """See make_profile; verification is bound by arithmetic from 80 rows on."""
    return make_profile(target=RooflineCost(weights_s=0.008, token_s=1e-4))
