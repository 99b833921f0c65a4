"""Kinds of requests: answers of one kind are drafted about as well as each other, those of two kinds are not."""

from __future__ import annotations

from enum import StrEnum

LONG_PROMPT_TOKENS = 1024
"""From here on a prompt is long: a document, whose words answers repeat."""


class Kind(StrEnum):
    """Identifiers are part of the interface: labels of metrics."""

    PLAIN = "plain"
    LONG_PROMPT = "long_prompt"
    TOOLS = "tools"
    GRAMMAR = "grammar"


def kind_of(num_prompt_tokens: int, *, has_grammar: bool, has_tools: bool) -> Kind:
    """The most telling one: what an answer must look like, before what it is about."""
    if has_tools:
        return Kind.TOOLS
    if has_grammar:
        return Kind.GRAMMAR
    return Kind.LONG_PROMPT if num_prompt_tokens >= LONG_PROMPT_TOKENS else Kind.PLAIN
