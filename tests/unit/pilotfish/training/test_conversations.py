"""The data file: lines appear whole, what a kill tore off is dropped, what does not fit is refused by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.training.conversations import Conversation, ConversationWriter, read_conversations

LINES = [Conversation(1, [5, 6]), Conversation(2, [7, 8, 9])]


def write(path: Path) -> None:
    with ConversationWriter(path) as writer:
        for line in LINES:
            writer.append(line)


def test_round_trip_and_appending(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data.jsonl"
    write(path)
    write(path)
    assert list(read_conversations(path, 10)) == LINES + LINES


@pytest.mark.parametrize("torn_bytes", [1, 10, 20])
def test_a_torn_line_is_dropped(tmp_path: Path, torn_bytes: int) -> None:
    path = tmp_path / "data.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-torn_bytes])
    with ConversationWriter(path) as writer:
        writer.append(LINES[1])
    assert list(read_conversations(path, 10)) == LINES


def test_a_file_of_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"prompt_len"')
    with ConversationWriter(path):
        assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: no conversation"),
        ('{"prompt_len": 2}', "line 3: no conversation.*token_ids"),
        ('{"prompt_len": 2, "token_ids": [1, 2]}', "line 3: prompt_len is 2 of 2"),
        ('{"prompt_len": 0, "token_ids": [1, 2]}', "line 3: prompt_len is 0"),
        ('{"prompt_len": 1, "token_ids": [1, 10]}', "line 3: a token id is not in the target's vocabulary of 10"),
        ('{"prompt_len": 1, "token_ids": [1, -1]}', "line 3: a token id"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "data.jsonl"
    write(path)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InvalidRequestError, match=message):
        list(read_conversations(path, 10))
