"""What two vocabularies must be for one to draft for the other."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import models

from draft_service.translation.method import Method, method_for
from draft_service.translation.vocabularies import Vocabularies
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.folder import ModelMetadata
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.trained_tokenizers import KINDS, Kind, backend, trained_tokenizer


def metadata(vocab_size: int, end_id: int) -> ModelMetadata:
    return ModelMetadata(
        model_type="none",
        vocab_size=vocab_size,
        max_context_tokens=64,
        eos_token_ids=frozenset({end_id}),
        config={},
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_take_any_text(kind: Kind) -> None:
    assert Vocabularies(trained_tokenizer(kind), trained_tokenizer(kind)).target_ids


@pytest.mark.parametrize(("target", "drafter"), [("sentencepiece", "byte_bpe"), ("byte_bpe", "sentencepiece")])
def test_common_tokens_are_those_that_texts_are_written_with(target: Kind, drafter: Kind) -> None:
    """A tokenizer with byte fallback has two tokens for a letter, and writes but one of them."""
    pair = Vocabularies(trained_tokenizer(target), trained_tokenizer(drafter))
    for letter in "q!7":
        (target_id,), (drafter_id,) = (
            continuation.encode(letter)[0] for continuation in (pair.target_continuation, pair.drafter_continuation)
        )
        assert (pair.target_ids[drafter_id], pair.drafter_ids[target_id]) == (target_id, drafter_id)


def test_tokens_that_end_an_answer_stand_for_each_other_alone() -> None:
    """Also where they are text to a tokenizer: no token of the target's may stand for two of the drafter's."""
    target, drafter = trained_tokenizer("byte_bpe"), trained_tokenizer("byte_bpe")
    word = target.continuation().encode("q")[0][0]
    target = Tokenizer(backend("byte_bpe"), metadata(target.vocab_size, word), None, "words", Path())
    common = Vocabularies(target, drafter).common()
    assert common is not None
    assert len(set(common.target_ids)) == len(common.target_ids)
    assert dict(zip(common.drafter_ids, common.target_ids, strict=True))[1] == word


def test_one_that_fails_on_unknown_characters_is_refused() -> None:
    """A request with such a character would end the connection to the draft service, and all sequences there."""
    letters = tokenizers.Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)]))
    drafter = Tokenizer(letters, metadata(2, 1), None, "letters", Path("letters"))
    with pytest.raises(UnsupportedModelError, match="letters fails on characters that it does not know"):
        Vocabularies(trained_tokenizer("byte_bpe"), drafter)


@pytest.mark.parametrize(
    ("target", "drafter", "method"),
    [
        ("byte_bpe", "byte_bpe", Method.INTERSECTION),
        ("bytes", "byte_bpe", Method.TEXT),
        ("byte_bpe", "bytes", Method.TEXT),
    ],
)
def test_auto_holds_no_drafter_to_the_letters_of_its_words(target: Kind, drafter: Kind, method: Method) -> None:
    """Either way one has nearly all tokens of the other."""
    pair = Vocabularies(trained_tokenizer(target), trained_tokenizer(drafter))
    texts = (
        tokenizer.encode("The quick brown fox jumps over the lazy dog") for tokenizer in (pair.target, pair.drafter)
    )
    assert method_for("auto", pair, *texts) is method
