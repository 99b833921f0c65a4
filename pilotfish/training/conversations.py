"""Training data: a jsonl file with one conversation a line, `{"prompt_len": n, "token_ids": [...]}`.

The first prompt_len tokens are the prompt, the rest is what the target answered and what a drafter learns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from pilotfish.errors import InvalidRequestError


class Conversation(msgspec.Struct, frozen=True):
    """Prompt and answer as token ids."""

    prompt_len: int
    token_ids: list[int]

    @property
    def num_answer_tokens(self) -> int:
        return len(self.token_ids) - self.prompt_len


_decoder = msgspec.json.Decoder(Conversation)
_encoder = msgspec.json.Encoder()


def read_conversations(path: Path, vocab_size: int) -> Iterator[Conversation]:
    """The conversations of a file whose lines hold token ids.

    Raises: InvalidRequestError naming the line that is no conversation or whose tokens the vocabulary lacks.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                conversation = _decoder.decode(line)
            except msgspec.DecodeError as error:
                raise InvalidRequestError(f"{path}, line {number}: no conversation: {error}") from None
            check_conversation(conversation, vocab_size, f"{path}, line {number}")
            yield conversation


def check_conversation(conversation: Conversation, vocab_size: int, source: str) -> None:
    """Raise InvalidRequestError, named after its source, for a conversation that cannot be learned from."""
    if not 1 <= conversation.prompt_len < len(conversation.token_ids):
        raise InvalidRequestError(
            f"{source}: prompt_len is {conversation.prompt_len} of {len(conversation.token_ids)} tokens; "
            "there must be a prompt and an answer"
        )
    if min(conversation.token_ids) < 0 or max(conversation.token_ids) >= vocab_size:
        raise InvalidRequestError(
            f"{source}: a token id is not in the target's vocabulary of {vocab_size}: another model's data?"
        )


class ConversationWriter:
    """Appends conversations to a file, each line in one write; what a kill tore off is dropped when it opens."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        drop_torn_line(path)

    def __enter__(self) -> ConversationWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, conversation: Conversation) -> None:
        """Raises OSError when the disk is full; nothing of the line stays then."""
        line = _encoder.encode(conversation) + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        written = self._file.write(line)
        if written != len(line):
            self._file.truncate(end)
            raise OSError(28, os.strerror(28), self._file.name)


def drop_torn_line(path: Path) -> None:
    """Cut what follows the last complete line."""
    data_bytes = path.stat().st_size
    with path.open("r+b") as file:
        tail_bytes = min(data_bytes, 1 << 20)
        file.seek(data_bytes - tail_bytes)
        last_newline = file.read(tail_bytes).rfind(b"\n")
        file.truncate(data_bytes - tail_bytes + last_newline + 1)


def write_text_atomically(path: Path, text: str) -> None:
    """Replace the file as a whole: readers see the old text or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json_atomically(path: Path, value: object) -> None:
    """As write_text_atomically."""
    write_text_atomically(path, json.dumps(value, indent=2) + "\n")
