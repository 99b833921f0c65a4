"""`python -m orchestrator`, before anything listens."""

from __future__ import annotations

import pytest

from orchestrator.__main__ import start
from pilotfish.config import load_config
from pilotfish.errors import ConfigError


async def test_without_ray_it_must_be_told_where_the_targets_are() -> None:
    with pytest.raises(ConfigError, match=r"target_addresses is empty: .*\[dns:///NAME:PORT\]"):
        await start(load_config(overrides=["emulation.profile=instant", "orchestrator.port=0"]))
