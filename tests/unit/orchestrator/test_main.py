"""`python -m orchestrator`, before anything listens."""

from __future__ import annotations

import pytest

from orchestrator.__main__ import start
from pilotfish.config import load_config
from pilotfish.errors import ConfigError


async def test_without_ray_it_must_be_told_where_the_targets_are() -> None:
    with pytest.raises(ConfigError, match=r"target_addresses is empty: .*\[dns:///NAME:PORT\]"):
        await start(load_config(overrides=["emulation.profile=instant", "orchestrator.port=0"]))


async def test_a_cost_profile_on_which_nothing_takes_time_is_refused() -> None:
    settings = [
        "emulation.profile=instant",
        "orchestrator.port=0",
        "orchestrator.target_addresses=[127.0.0.1:1]",
        "orchestrator.speculation.cost_profile=instant",
    ]
    with pytest.raises(ConfigError, match=r"cost_profile: in 'instant' a step takes no time"):
        await start(load_config(overrides=settings))
