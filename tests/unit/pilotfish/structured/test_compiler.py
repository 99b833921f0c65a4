"""Compiling on a thread, and what is kept."""

import threading
from collections.abc import Iterator

import pytest
from llguidance import LLTokenizer

from pilotfish.errors import InvalidRequestError, UnavailableError
from pilotfish.structured import compiler as compiler_module
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.types import Grammar, GrammarKind


class Guard:
    """Every grammar takes as many bytes as its text says; one with a "!" is refused."""

    def __init__(self) -> None:
        self.is_closed = self.is_lost = False

    def check(self, grammar: Grammar) -> int:
        if self.is_lost:
            raise UnavailableError("lost")
        if "!" in grammar.text:
            raise InvalidRequestError("refused", param="grammar")
        return int(grammar.text)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def compiler(tokens: LLTokenizer, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrammarCompiler]:
    monkeypatch.setattr(compiler_module, "MAX_KEPT_GRAMMARS", 2)
    compiler = GrammarCompiler(lambda: tokens)
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
    assert not first.result(timeout=30).matcher.is_error()


def test_what_the_guard_refuses_is_not_compiled(tokens: LLTokenizer) -> None:
    guard = Guard()
    compiler = GrammarCompiler(lambda: tokens, guard)
    assert str(compiler.compile(regex("1!")).exception(timeout=30)) == "refused"
    assert not compiler.compile(regex("1")).result(timeout=30).matcher.is_error()
    compiler.close()
    assert guard.is_closed


class FrozenGuard(Guard):
    """Answers only once it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.is_ended = threading.Event(), threading.Event()

    def check(self, grammar: Grammar) -> int:
        self.is_asked.set()
        if self.is_ended.wait(10):
            raise UnavailableError("closed")
        return 1

    def close(self) -> None:
        self.is_ended.set()


def test_closing_does_not_wait_for_a_guard_that_is_frozen(tokens: LLTokenizer) -> None:
    guard = FrozenGuard()
    compiler = GrammarCompiler(lambda: tokens, guard)
    future = compiler.compile(regex("1"))
    assert guard.is_asked.wait(30)
    compiler.close()
    assert isinstance(future.exception(timeout=0), UnavailableError)


def test_what_is_kept_has_a_size(tokens: LLTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_module, "MAX_KEPT_BYTES", 10)
    compiler = GrammarCompiler(lambda: tokens, Guard())
    small, large = compiler.compile(regex("4")), compiler.compile(regex("7"))
    large.result(timeout=30)
    newest = compiler.compile(regex("1"))  # 11 with the small one, which goes
    newest.result(timeout=30)
    assert compiler.compile(regex("7")) is large
    assert compiler.compile(regex("4")) is not small
    compiler.close()


class GatedGuard(Guard):
    """Checks a grammar for each time that it is let to, and remembers which."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[str] = []
        self.is_asked, self.may_answer = threading.Semaphore(0), threading.Semaphore(0)

    def check(self, grammar: Grammar) -> int:
        self.checked.append(grammar.text)
        self.is_asked.release()
        assert self.may_answer.acquire(timeout=30)
        return 1


@pytest.fixture
def gated(tokens: LLTokenizer) -> Iterator[tuple[GrammarCompiler, GatedGuard]]:
    """While it compiles a first grammar, of client a."""
    guard = GatedGuard()
    compiler = GrammarCompiler(lambda: tokens, guard)
    compiler.compile(regex("0"), "a")
    assert guard.is_asked.acquire(timeout=30)
    yield compiler, guard
    guard.may_answer.release(100)
    compiler.close()


def test_one_clients_grammars_do_not_hold_up_anothers(gated: tuple[GrammarCompiler, GatedGuard]) -> None:
    compiler, guard = gated
    many = [compiler.compile(regex(str(number)), "a") for number in range(10, 40)]
    other = compiler.compile(regex("7"), "b")
    assert compiler.compile(regex("39"), "c") is many[-1]
    guard.may_answer.release(3)
    other.result(timeout=30)
    many[-1].result(timeout=30)
    assert set(guard.checked[:3]) == {"0", "7", "39"}, "whoever asks for it next is served, though another asked first"
    guard.may_answer.release(100)
    for future in many:
        future.result(timeout=30)
    assert len(guard.checked) == len(set(guard.checked)) == 32


def test_what_is_cancelled_is_not_compiled_unless_it_is_asked_for_again(
    gated: tuple[GrammarCompiler, GatedGuard],
) -> None:
    compiler, guard = gated
    gone, back, last = (compiler.compile(regex(text), "a") for text in ("1", "2", "3"))
    assert gone.cancel()
    assert back.cancel()
    again = compiler.compile(regex("2"), "a")
    guard.may_answer.release(100)
    last.result(timeout=30)
    again.result(timeout=30)
    assert sorted(guard.checked) == ["0", "2", "3"]


def test_closing_cancels_what_waits(gated: tuple[GrammarCompiler, GatedGuard]) -> None:
    compiler, guard = gated
    waiting = compiler.compile(regex("1"), "a")
    guard.may_answer.release(100)
    compiler.close()
    assert waiting.done()
