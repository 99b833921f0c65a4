"""A conversation in tokens, and files that are written as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pilotfish.errors import InvalidRequestError


class Conversation(msgspec.Struct, frozen=True):
    """Prompt and answer as token ids: the first prompt_len are the prompt, a drafter learns the rest."""

    prompt_len: int
    token_ids: list[int]


LineT = TypeVar("LineT")


def read_lines(path: Path, decoder: msgspec.json.Decoder[LineT]) -> Iterator[tuple[str, LineT]]:
    """Where each line of a jsonl file is, for messages, and what it says. Empty lines are skipped.

    Raises: InvalidRequestError for a file or a line that cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                source = f"{path}, line {number}"
                try:
                    yield source, decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise InvalidRequestError(f"{source}: {error}") from None
    except OSError as error:
        raise InvalidRequestError(f"cannot read {path}: {error.strerror}") from error


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
