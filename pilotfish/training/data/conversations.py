"""A conversation in tokens, and files that are written as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from safetensors import SafetensorError

from pilotfish.chat import ChatMessage
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer


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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what replaces the file as a whole at the end of the block: readers see the old one or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        yield temporary
        temporary.replace(path)
    except SafetensorError as error:  # the library's form of an OSError of writing
        raise OSError(f"cannot write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """See replacing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json_atomically(path: Path, value: object) -> None:
    """As write_text_atomically, for JSON."""
    write_text_atomically(path, json.dumps(value, indent=2) + "\n")


_MIN_CONVERSATIONS = 2
"""One to learn from, one to judge by."""


class _Line(msgspec.Struct):
    prompt_len: int | None = None
    token_ids: list[int] | None = None
    messages: list[ChatMessage] | None = None
    text: str | None = None


_decoder = msgspec.json.Decoder(_Line)


def read_data(path: Path, tokenizer: Tokenizer, max_tokens: int) -> list[Conversation]:
    """All conversations of a file, cut to max_tokens.

    Raises: InvalidRequestError for a file that cannot be read or holds too little, naming the line of what is wrong.
    """
    conversations = []
    for source, line in read_lines(path, _decoder):
        conversation = _tokenize(line, tokenizer, source)
        check_conversation(conversation, tokenizer.vocab_size, source)
        if conversation.prompt_len < max_tokens:
            conversations.append(Conversation(conversation.prompt_len, conversation.token_ids[:max_tokens]))
    if len(conversations) < _MIN_CONVERSATIONS:
        raise InvalidRequestError(
            f"{path} holds {len(conversations)} conversations; at least {_MIN_CONVERSATIONS} are needed"
        )
    return conversations


def _tokenize(line: _Line, tokenizer: Tokenizer, source: str) -> Conversation:
    if line.token_ids is not None and line.prompt_len is not None:
        return Conversation(line.prompt_len, line.token_ids)
    if line.messages is not None:
        return _tokenize_chat(line.messages, tokenizer, source)
    if line.text is not None:
        return Conversation(1, tokenizer.encode(line.text))
    raise InvalidRequestError(f"{source}: neither prompt_len and token_ids, nor messages, nor text")


def _tokenize_chat(messages: Sequence[ChatMessage], tokenizer: Tokenizer, source: str) -> Conversation:
    """The chat up to its last assistant turn, which is the answer."""
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=0)
    if last == 0:
        raise InvalidRequestError(f"{source}: no assistant turn that answers another")
    prompt = tokenizer.apply_chat_template(messages[:last])
    # The template adds the beginning of one more turn; the answer ends with the first end token.
    whole = tokenizer.apply_chat_template(messages[: last + 1])
    answer = whole[len(prompt) :]
    end = next((at for at, token_id in enumerate(answer) if token_id in tokenizer.eos_token_ids), None)
    if whole[: len(prompt)] != prompt or end is None:
        raise InvalidRequestError(f"{source}: the target's chat template does not end this turn as it ends answers")
    return Conversation(len(prompt), [*prompt, *answer[: end + 1]])
