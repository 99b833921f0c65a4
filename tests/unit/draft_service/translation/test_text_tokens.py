"""Tokens of a growing text: those of the whole text, at the cost of its last words."""

import random

import pytest

from draft_service.translation.text_tokens import TextTokens
from pilotfish.models.tokens.continuation import Continuation
from tests.support.trained_tokenizers import KINDS, Kind, backend, random_text


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_the_whole_text(kind: Kind) -> None:
    continuation, numbers = Continuation(backend(kind)), random.Random(7)
    for _ in range(100):
        tokens, text = TextTokens(continuation), ""
        for _ in range(25):
            kept = len(text) - numbers.choice((0, 0, 0, min(len(text), numbers.randrange(20))))
            more = random_text(numbers, numbers.randrange(6))
            before, text = list(tokens.token_ids), text[:kept] + more
            num_kept = tokens.replace_from(kept, more)
            assert tokens.token_ids == continuation.encode(text)[0], text
            assert tokens.token_ids[:num_kept] == before[:num_kept]


class Counted(Continuation):
    """Counts the characters that it tokenises."""

    num_chars = 0

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        self.num_chars += len(text)
        return super().encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_costs_no_more_than_a_short_one(kind: Kind) -> None:
    counted = Counted(backend(kind))
    tokens = TextTokens(counted)
    tokens.replace_from(0, "The quick brown fox sleeps. " * 2000)
    counted.num_chars = 0
    for _ in range(100):
        tokens.replace_from(len(tokens.text), " over the dog")
    assert counted.num_chars < 100 * 400


def test_a_text_without_words_is_tokenised_from_further_back() -> None:
    """A run of one letter comes out otherwise from its end on than from its beginning."""
    continuation = Continuation(backend("sentencepiece"))
    tokens, text = TextTokens(continuation), "o" * 500
    tokens.replace_from(0, text)
    tokens.replace_from(len(text), "ov")
    assert tokens.token_ids == continuation.encode(text + "ov")[0]
