"""Two vocabularies: the target's, and that of a drafter of another family."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pilotfish.errors import UnsupportedModelError
from pilotfish.messages import LearnVocabulary
from pilotfish.models.tokens.continuation import Continuation
from pilotfish.models.tokens.token_bytes import TextBytes
from pilotfish.models.tokens.tokenizer import Tokenizer

_UNKNOWN_TO_ALL = "\U0010fffd"
"""A character for private use."""


class Vocabularies:
    """What each means by the other's tokens."""

    def __init__(self, target: Tokenizer, drafter: Tokenizer, name: int = 1) -> None:
        """name: what the drafter's engine calls the tokens that both have (UseVocabulary), one of several; not 0.

        Goes through both vocabularies: seconds, where they are large. Raises UnsupportedModelError for a tokenizer
        that fails on characters that it does not know: requests have any.
        """
        self.name = name
        self.target = target
        self.drafter = drafter
        self.target_continuation = target.continuation()
        self.drafter_continuation = drafter.continuation()
        for tokenizer, continuation in ((target, self.target_continuation), (drafter, self.drafter_continuation)):
            _require_any_text(tokenizer, continuation)
        self.target_ids = _same_bytes(target, drafter)
        """The target's token for each of the drafter's that stands for the same bytes."""
        self.drafter_ids = {target_id: drafter_id for drafter_id, target_id in self.target_ids.items()}
        """The same the other way round."""
        self.end_id = min(drafter.eos_token_ids, default=None)
        """The drafter's token that ends an answer."""
        self.end_ids = () if self.end_id is None else (self.end_id,)

    def common(self) -> LearnVocabulary | None:
        """The tokens that both have, and those that end an answer, for the drafter's engine; None: there are none."""
        pairs = dict(self.target_ids)
        if self.end_id is not None and self.target.eos_token_ids:
            pairs[self.end_id] = min(self.target.eos_token_ids)
        return LearnVocabulary(self.name, tuple(pairs), tuple(pairs.values())) if pairs else None

    def share(self, token_ids: Sequence[int]) -> float:
        """Share of these tokens of the target's that the drafter has as well; 1.0 of none."""
        return _share(self.drafter_ids, token_ids)

    def share_of_drafter(self, token_ids: Sequence[int]) -> float:
        """The same of the drafter's tokens that the target has."""
        return _share(self.target_ids, token_ids)

    def drafter_prompt(self, token_ids: Sequence[int]) -> list[int]:
        """The drafter's tokens of a prompt of the target's, with those that its tokenizer adds around a text."""
        pieces = TextBytes(self.target.bytes_by_token(skip_special=False)).add(token_ids)
        return self.drafter.encode(b"".join(pieces).decode(errors="replace"))


def _share(known: Container[int], token_ids: Sequence[int]) -> float:
    return sum(token_id in known for token_id in token_ids) / len(token_ids) if token_ids else 1.0


def _require_any_text(tokenizer: Tokenizer, continuation: Continuation) -> None:
    try:
        continuation.encode(_UNKNOWN_TO_ALL)
    except Exception as error:  # the library raises bare Exception
        raise UnsupportedModelError(
            f"the tokenizer in {tokenizer.folder} fails on characters that it does not know ({error}): take another "
            "draft model"
        ) from error


def _same_bytes(target: Tokenizer, drafter: Tokenizer) -> dict[int, int]:
    """The target's token for each of the drafter's. Special ones stand for no bytes, and those that end an answer for
    each other: they may be ordinary text to a tokenizer."""
    target_ids, drafter_ids = _by_bytes(target), _by_bytes(drafter)
    return {drafter_ids[data]: target_ids[data] for data in drafter_ids if data in target_ids}


def _by_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """The token that is written for some bytes: of several one that is no byte of its own, which stands in for unknown
    characters alone, and of these the lowest id."""
    found: dict[bytes, int] = {}
    fallback: dict[bytes, int] = {}
    for token_id in range(tokenizer.vocab_size):
        data = b"" if token_id in tokenizer.eos_token_ids else tokenizer.bytes_of(token_id)
        if data:
            (fallback if tokenizer.token_bytes.is_fallback(token_id) else found).setdefault(data, token_id)
    return fallback | found
