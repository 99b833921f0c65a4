"""Where the cache is, as the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.config import default_cache_dir, load_config
from pilotfish.errors import ConfigError


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PILOTFISH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_cache_dir() == "/home/ann/.cache/pilotfish"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache_dir() == "/xdg/pilotfish"
    monkeypatch.setenv("PILOTFISH_CACHE", "/mine")
    assert default_cache_dir() == "/mine"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PILOTFISH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigError, match="set PILOTFISH_CACHE"):
        load_config()
    assert load_config(overrides=["cache_dir=/mine"]).cache_dir == "/mine"
