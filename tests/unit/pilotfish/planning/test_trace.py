"""Traces from files."""

from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.planning.trace import TraceEntry, load_trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def test_entries_come_in_the_order_of_their_time_whatever_else_they_hold(path: Path) -> None:
    path.write_text(
        '{"timestamp": 30, "input_length": 7, "output_length": 3, "hash_ids": [1]}\n\n'
        '{"timestamp": 10.5, "input_length": 5, "output_length": 2}\n'
    )
    assert load_trace(path) == [TraceEntry(10.5, 5, 2), TraceEntry(30, 7, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no requests"),
        ("{\n", "line 1"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1}\n{"timestamp": 1}', "line 2.*input_length"),
        ('{"timestamp": 1, "input_length": 0, "output_length": 1}', "line 1.*>= 1"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 1}', "line 1.*>= 0"),
    ],
)
def test_the_line_that_cannot_be_used_is_named(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_trace(path)


def test_files_that_cannot_be_read_are_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the trace"):
        load_trace(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_trace(path)
