"""Drafts what a request's grammar forces, as the model would write it: braces, quotes, names, the rest of enum values.

The text is certain, its tokens are not: they are the tokenizer's where the model has not shown other habits. The last
token stays open where most of what may follow it would be written with a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer

from pilotfish.drafters.grammar.habits import Place, SplitHabits
from pilotfish.engine.core.drafts import ForcedSpan
from pilotfish.models.tokens.detokenizer import whole_characters
from pilotfish.structured.forcing import ForcedText
from pilotfish.structured.matching import GrammarMatcher

_MAX_TOKEN_BYTES = 8
"""Text is looked for as far as so many bytes a token: more than the tokens of names and punctuation have."""
_MAX_S = 0.002
"""CPU time for it: a hundred forced bytes take half of that (measured)."""
_PLACE_BYTES = 16
"""A place is known by the token before it, so many bytes behind it, and whether the answer is greedy: where tokens are
drawn, text is split otherwise."""
_NUM_RECENT = 4
"""Tokens before the text that have a say in how it is split."""
_MIN_CONFIDENCE = 0.9
"""Less sure of a token, the draft ends before it."""


class GrammarDrafter:
    """See ForcedTokens."""

    def __init__(self, max_s: float = _MAX_S) -> None:
        self._max_s = max_s
        self._habits = SplitHabits()

    def draft(
        self,
        grammar: GrammarMatcher,
        token_ids: Sequence[int],
        max_tokens: int,
        *,
        is_greedy: bool,
        cache_salt: str = "",
    ) -> ForcedSpan:
        forced = _whole_characters(grammar.forced(max_bytes=_MAX_TOKEN_BYTES * max_tokens, max_s=self._max_s))
        text, recent = forced.text, list(token_ids[-_NUM_RECENT:])
        drafted: list[int] = []
        places: list[Place] = []
        wanted: list[int] = []
        while text and len(drafted) < max_tokens:
            if not wanted:
                wanted = _split(text, grammar.vocabulary, [*recent, *drafted][-_NUM_RECENT:])
            canonical = wanted.pop(0)
            # What the walk was cut short of is not known.
            if grammar.vocabulary.decode_bytes([canonical]) == text and _is_open(forced, text, grammar, drafted):
                break
            around = hash((is_greedy, [*recent, *drafted][-1], text[:_PLACE_BYTES]))
            place = (hash(cache_salt), around, canonical)
            token_id, confidence = self._habits.likeliest(place)
            written = grammar.vocabulary.decode_bytes([token_id])
            places.append(place)
            if confidence < _MIN_CONFIDENCE or not text.startswith(written):
                break
            drafted.append(token_id)
            text = text[len(written) :]
            if token_id != canonical:
                wanted = []
        if not text and forced.end_token_id is not None and len(drafted) < max_tokens:
            drafted.append(forced.end_token_id)
        return ForcedSpan(tuple(drafted), tuple(places))

    def learn(self, span: ForcedSpan, token_ids: Sequence[int]) -> None:
        for index, (place, token_id) in enumerate(zip(span.places, token_ids, strict=False)):
            self._habits.note(place, token_id)
            if span.token_ids[index : index + 1] != (token_id,):
                break  # what follows was foreseen elsewhere


def _whole_characters(forced: ForcedText) -> ForcedText:
    """The same without the beginning of a character at its end: what it becomes decides on its tokens."""
    _, rest = whole_characters(forced.text)
    if not rest:
        return forced
    return ForcedText(forced.text[: -len(rest)], next_bytes=frozenset((rest[0],)))


def _split(text: bytes, vocabulary: LLTokenizer, recent_token_ids: list[int]) -> list[int]:
    """The tokenizer's tokens of the text, or of its beginning where no token is a whole end; at least one."""
    token_ids, rest = vocabulary.tokenize_partial(text, recent_token_ids)
    last = vocabulary.tokenize_bytes(rest) if rest else []
    return [*token_ids, *last] if len(last) == 1 or not token_ids else token_ids


def _is_open(forced: ForcedText, last: bytes, grammar: GrammarMatcher, drafted: Sequence[int]) -> bool:
    """Whether the last piece of the text, behind what is drafted, rather is the beginning of a longer token."""
    if forced.end_token_id is not None or not forced.next_bytes:
        return False
    texts = grammar.few_allowed(drafted)
    longer = {each[len(last)] for each in texts if each.startswith(last) and len(each) > len(last)}
    return 2 * len(longer & forced.next_bytes) >= len(forced.next_bytes)
