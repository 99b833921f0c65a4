"""Data that a user brings: jsonl whose lines are token ids, chats or plain text, read and checked as a whole.

A line is one of `{"prompt_len": n, "token_ids": [...]}`, `{"messages": [{"role": ..., "content": ...}, ...]}` (the last
assistant turn is learned) and `{"text": "..."}` (all of it is learned: the target runs over existing text).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data.conversations import Conversation, check_conversation, read_lines
from pilotfish.types import ChatMessage

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
