"""Keys that stand in a file twice."""

from pathlib import Path

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("target: {port: 1}\ndraft: {port: 2}\ntarget: {host: a}\n", "line 3, column 1: the key target is here twice"),
        ("target: {port: 1, port: 2}\n", "line 1, column 19: the key port is here twice"),
    ],
)
def test_a_repeated_key_is_refused_where_it_stands(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_config(path)


def test_a_file_nested_beyond_measure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("[" * 3000 + "]" * 3000)
    with pytest.raises(ConfigError, match=r"c\.yaml is nested too deeply"):
        load_config(path)


def test_merged_keys_may_be_overridden(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "target: {engine: &engine {max_sequences: 3, num_threads: 1}}\ndraft: {engine: {<<: *engine, num_threads: 2}}\n"
    )
    engine = load_config(path).draft.engine
    assert (engine.max_sequences, engine.num_threads) == (3, 2)
