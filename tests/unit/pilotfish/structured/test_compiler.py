"""Compiling on a thread, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from llguidance import LLTokenizer

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.types import Grammar, GrammarKind


@pytest.fixture
def compiler(tokens: LLTokenizer) -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(lambda: tokens, max_kept=2)
    yield compiler
    compiler.close()


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


def test_a_grammar_is_compiled_once_while_it_is_kept(compiler: GrammarCompiler) -> None:
    first = compiler.compile(regex("ab"))
    assert compiler.compile(regex("ab")) is first
    compiler.compile(regex("12"))
    compiler.compile(regex("ab"))  # used last: the other one goes
    compiler.compile(regex("no"))
    assert compiler.compile(regex("ab")) is first
    assert not first.result(timeout=30).is_error()


def test_a_bad_grammar_fails_its_own_future_only(compiler: GrammarCompiler) -> None:
    bad, good = compiler.compile(regex("a(b")), compiler.compile(regex("ab"))
    assert isinstance(bad.exception(timeout=30), InvalidRequestError)
    assert not good.result(timeout=30).is_error()


def test_a_vocabulary_that_cannot_be_loaded_is_told() -> None:
    def load() -> LLTokenizer:
        raise OSError("no tokenizer.json")

    compiler = GrammarCompiler(load)
    assert isinstance(compiler.compile(regex("ab")).exception(timeout=30), OSError)
    compiler.close()
