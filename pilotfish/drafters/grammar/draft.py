"""Drafts what a request's grammar forces, as the model would write it: braces, quotes, names, the rest of enum values.

The forced text is split into tokens as it is where nothing but text follows (canonical tokens). Its last token stays
open where the grammar allows a longer one in its place: the text is certain there and the token is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer

from pilotfish.structured.forcing import ForcedText
from pilotfish.structured.matching import GrammarMatcher

_MAX_TOKEN_BYTES = 8
"""Text is looked for as far as so many bytes a token: more than the tokens of names and punctuation have."""
_MAX_S = 0.002
"""Time for it: a hundred forced bytes take half of that (measured)."""
_NUM_RECENT = 4
"""Tokens before the text that have a say in how it is split."""


class GrammarDrafter:
    """See ForcedTokens."""

    def draft(self, grammar: GrammarMatcher, token_ids: Sequence[int], max_tokens: int) -> tuple[int, ...]:
        forced = grammar.forced(max_bytes=_MAX_TOKEN_BYTES * max_tokens, max_s=_MAX_S)
        return split(forced, grammar.vocabulary, token_ids[-_NUM_RECENT:])[:max_tokens]


def split(forced: ForcedText, vocabulary: LLTokenizer, recent_token_ids: Sequence[int]) -> tuple[int, ...]:
    """The tokens of the text, as far as they are certain. recent_token_ids: those before it."""
    if forced.end_token_id is not None:
        return (*vocabulary.tokenize_bytes(forced.text), forced.end_token_id)
    token_ids, _ = vocabulary.tokenize_partial(forced.text, list(recent_token_ids))
    return tuple(token_ids)
