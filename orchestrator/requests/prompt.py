"""Prompts as callers write them, and their token ids."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, assert_never

from orchestrator.requests.token_checks import check_token_ids
from pilotfish.chat import ChatMessage
from pilotfish.errors import PromptTooLongError
from pilotfish.models.tokens.chat_template import DEFAULT_OPTIONS, TemplateOptions
from pilotfish.models.tokens.tokenizer import Tokenizer

_MAX_INLINE_CHARS = 512
"""Longer text is tokenised on a thread: 512 characters take well under a millisecond."""


@dataclass(frozen=True)
class TextPrompt:
    """Raw text, without a template."""

    is_chat: ClassVar = False
    text: str
    add_special_tokens: bool = True
    """Whether it gets the tokens that the model's tokenizer adds around a text."""


@dataclass(frozen=True)
class TokenPrompt:
    """Token ids, taken as they are."""

    token_ids: Sequence[int]
    is_chat: bool = False
    """Whether they are a chat's."""


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation, formatted with the model's chat template."""

    is_chat: ClassVar = True
    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Functions that the model may call, defined as in the OpenAI API."""
    options: TemplateOptions = DEFAULT_OPTIONS

    @property
    def open_content(self) -> str:
        """What the answer goes on with, without the space around it."""
        return self.messages[-1].content.strip() if self.options.continue_final_message else ""


Prompt = TextPrompt | TokenPrompt | ChatPrompt
ResultT = TypeVar("ResultT")


class Run(Protocol):
    """Does work on a thread, in its client's turn: see `FairThreads.run`."""

    async def __call__(self, work: Callable[[], ResultT], /) -> ResultT: ...


async def token_ids_of(prompt: Prompt, tokenizer: Tokenizer, max_context_tokens: int, run: Run) -> Sequence[int]:
    """Token ids of the prompt, which may be none, or more than the context has room for.

    Raises InvalidRequestError for an empty chat, PromptTooLongError for a prompt that is far beyond the context.
    """
    match prompt:
        case TokenPrompt():
            return prompt.token_ids
        case TextPrompt():
            encode = functools.partial(
                tokenizer.encode,
                prompt.text,
                max_tokens=max_context_tokens,
                add_special_tokens=prompt.add_special_tokens,
            )
            return encode() if len(prompt.text) <= _MAX_INLINE_CHARS else await run(encode)
        case ChatPrompt():
            # Always on a thread: a template may do anything.
            encode = functools.partial(
                tokenizer.apply_chat_template,
                prompt.messages,
                prompt.tools,
                prompt.options,
                max_tokens=max_context_tokens,
            )
            return await run(encode)
        case _:
            assert_never(prompt)


async def prompt_text(prompt: TextPrompt | TokenPrompt, tokenizer: Tokenizer, max_context_tokens: int, run: Run) -> str:
    """The prompt as it was given, special tokens included. Raises as `text_of_tokens`."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    return await text_of_tokens("the prompt", prompt.token_ids, tokenizer, max_context_tokens, run)


async def text_of_tokens(
    name: str, token_ids: Sequence[int], tokenizer: Tokenizer, max_context_tokens: int, run: Run
) -> str:
    """The text of the tokens, special ones included. name: the parameter, perhaps with an article.

    Raises InvalidRequestError for tokens that do not exist, PromptTooLongError for more than the context has: while
    tokens are decoded no other thread runs, 0.8 s for a million.
    """
    if len(token_ids) > max_context_tokens:
        raise PromptTooLongError(
            f"{name} has {len(token_ids)} tokens and the context {max_context_tokens}", param=name.removeprefix("the ")
        )
    check_token_ids(name, token_ids, tokenizer.vocab_size)
    return await run(functools.partial(tokenizer.decode, token_ids, False))
