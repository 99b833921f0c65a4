"""Sixty-four tokens that JSON can be written with: grammars for models too small for a real tokenizer."""

from collections.abc import Iterable, Sequence

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from pilotfish.structured.grammar import engine_grammar
from pilotfish.types import Grammar

EOS_TOKEN_ID = 0
_LONG = ('{"', '":', '": ', '", "', '"}', "true", "false", "null", "ab", "}}", "]}", ", ", "no")
_SHORT = '{}[]",: -.#0123456789abcdefghijklmnopqrstuvwxyzABC'


class SmallVocabulary:
    """Token 0 ends an answer; the others are one character or a few of them."""

    def __init__(self) -> None:
        self.texts = ("", *_SHORT, *_LONG)
        self.size = 64
        assert len(self.texts) <= self.size

    def encode(self, text: str) -> list[int]:
        """The longest tokens first. Raises ValueError for a character that no token writes."""
        token_ids = []
        while text:
            best = max((piece for piece in self.texts[1:] if text.startswith(piece)), key=len, default=None)
            if best is None:
                raise ValueError(f"no token writes {text[0]!r}")
            token_ids.append(self.texts.index(best))
            text = text[len(best) :]
        return token_ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text; the end token has none."""
        return "".join(self.texts[token_id] for token_id in token_ids)

    def tokenizer(self) -> LLTokenizer:
        """As grammars need it."""
        return LLTokenizer(TokenizerWrapper(_Backend(self)), n_vocab=self.size, eos_token=EOS_TOKEN_ID)


class _Backend:
    """What llguidance asks of a tokenizer."""

    eos_token_id = EOS_TOKEN_ID
    bos_token_id = None
    special_token_ids: Sequence[int] = (EOS_TOKEN_ID,)

    def __init__(self, vocabulary: SmallVocabulary) -> None:
        self._vocabulary = vocabulary
        self.tokens = [b"<eos>", *(text.encode() for text in vocabulary.texts[1:])]

    def __call__(self, text: str | bytes) -> list[int]:
        return self._vocabulary.encode(text.decode() if isinstance(text, bytes) else text)


def is_whole(grammar: Grammar, text: str) -> bool:
    """Whether a text, byte by byte, is all of an answer that the grammar allows."""
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, engine_grammar(grammar))
    token_ids = tokenizer.tokenize_str(text)
    return bool(matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting())
