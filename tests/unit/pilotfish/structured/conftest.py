"""A small vocabulary with tokens of one and of several characters."""

import pytest
from llguidance import LLTokenizer

from tests.support.small_vocabulary import SmallVocabulary


@pytest.fixture(scope="session")
def vocabulary() -> SmallVocabulary:
    return SmallVocabulary()


@pytest.fixture(scope="session")
def tokens(vocabulary: SmallVocabulary) -> LLTokenizer:
    return vocabulary.tokenizer()
