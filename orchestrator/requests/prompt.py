"""Prompts as callers write them, and their token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from orchestrator.requests.request import check_token_ids
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.types import ChatMessage

_MAX_INLINE_CHARS = 512
"""Longer text is tokenised on a thread: 512 characters take well under a millisecond."""


@dataclass(frozen=True)
class TextPrompt:
    """Raw text, without a template."""

    text: str


@dataclass(frozen=True)
class TokenPrompt:
    """Token ids, taken as they are."""

    token_ids: Sequence[int]


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation, formatted with the model's chat template."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Functions that the model may call, defined as in the OpenAI API."""


Prompt = TextPrompt | TokenPrompt | ChatPrompt


async def token_ids_of(prompt: Prompt, tokenizer: Tokenizer) -> Sequence[int]:
    """Token ids of the prompt. Raises InvalidRequestError for an empty text or chat."""
    match prompt:
        case TokenPrompt():
            return prompt.token_ids
        case TextPrompt():
            if not prompt.text:
                raise InvalidRequestError("the prompt is empty; it must have at least one character")
            if len(prompt.text) <= _MAX_INLINE_CHARS:
                return tokenizer.encode(prompt.text)
            return await asyncio.to_thread(tokenizer.encode, prompt.text)
        case ChatPrompt():
            # Always on a thread: a template may do anything.
            return await asyncio.to_thread(tokenizer.apply_chat_template, prompt.messages, prompt.tools)
        case _:
            assert_never(prompt)


async def prompt_text(prompt: TextPrompt | TokenPrompt, tokenizer: Tokenizer) -> str:
    """The prompt as it was given, special tokens included. Raises InvalidRequestError for tokens that do not exist."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    check_token_ids("the prompt", prompt.token_ids, tokenizer.vocab_size)
    return await asyncio.to_thread(tokenizer.decode, prompt.token_ids, False)
