"""A grammar that crashes, hangs or fills the memory costs its own check, and nothing else."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from pilotfish.errors import InvalidRequestError, UnavailableError
from pilotfish.structured import guard as guard_module
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.grammar import load_vocabulary
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import Grammar, GrammarKind

Children = Callable[[], list[psutil.Process]]
GOOD = Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
SLOW = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer", "multipleOf": 999983}')
LARGE = Grammar(GrammarKind.LARK, "start: T\nT: " + " & ".join(f"/(.*a.{{{n}}}|[^b]*)/" for n in range(900, 940)))


@pytest.fixture
def guard(model_folder: Path) -> Iterator[GrammarGuard]:
    guard = GrammarGuard(model_folder, 98, {0})
    yield guard
    guard.close()


@pytest.fixture
def children(model_folder: Path) -> Children:
    """The guard's own, beside those of other tests' servers."""
    return lambda: [child for child in psutil.Process().children() if str(model_folder) in child.cmdline()]


@contextmanager
def compiling(guard: GrammarGuard, children: Children) -> Iterator[tuple[Future[int], psutil.Process]]:
    """The check of SLOW under way, and the process that compiles it."""
    guard.check(GOOD)
    (process,) = children()
    while process.children():
        pass  # the one that compiled GOOD has answered, and may yet have to end
    with ThreadPoolExecutor() as pool:
        checking = pool.submit(guard.check, SLOW)
        while not (found := process.children()):
            pass
        yield checking, found[0]


def test_what_is_wrong_is_told_with_its_parameter(guard: GrammarGuard) -> None:
    with pytest.raises(InvalidRequestError, match=r"regular expression cannot be used: .*unclosed group") as caught:
        guard.check(Grammar(GrammarKind.REGEX, "a(b"), param="structured_outputs")
    assert caught.value.param == "structured_outputs"
    with pytest.raises(InvalidRequestError, match="no text can follow it") as caught:
        guard.check(Grammar(GrammarKind.JSON_SCHEMA, '{"$ref": "#"}'), param="response_format")
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(("grammar", "told"), [(SLOW, "takes more than"), (LARGE, "takes more than")])
def test_a_compilation_beyond_the_limits_is_refused(
    guard: GrammarGuard, grammar: Grammar, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        guard.check(grammar)
    assert caught.value.param == "grammar"
    assert guard.num_deaths == 1
    assert "died of SIG" in caplog.text
    assert guard.check(GOOD) > 0


@pytest.mark.parametrize(
    ("number", "error", "told", "num_deaths"),
    [
        (signal.SIGSEGV, InvalidRequestError, "the grammar library cannot compile it", 1),
        (signal.SIGKILL, UnavailableError, "SIGKILL", 0),  # somebody else's: it says nothing of the grammar
    ],
)
def test_an_end_of_a_compilation_costs_one_check(
    guard: GrammarGuard, children: Children, number: int, error: type[Exception], told: str, num_deaths: int
) -> None:
    with compiling(guard, children) as (checking, child):
        process = child.parent()
        child.send_signal(number)
        with pytest.raises(error, match=told):
            checking.result(timeout=30)
    assert guard.num_deaths == num_deaths
    assert guard.check(GOOD) > 0
    assert children() == [process]


def chain(num_rules: int) -> Grammar:
    """The library's compiler calls itself for each rule."""
    rules = (f"r{index}: r{index + 1}" for index in range(num_rules))
    return Grammar(GrammarKind.LARK, "\n".join(("start: r0", *rules, f'r{num_rules}: "a"')))


def test_what_passes_the_guard_is_far_from_overflowing_an_engines_stack(
    guard: GrammarGuard, model_folder: Path
) -> None:
    """2,000 rules take more than 4 MB and less than 8, which is what processes and threads commonly have; 3,000 take
    more than 8. An engine's thread with too small a stack ends this process."""
    assert guard.check(chain(500)) > 0
    with pytest.raises(InvalidRequestError, match="the grammar library cannot compile it"):
        guard.check(chain(2000))
    compiler = GrammarCompiler(lambda: load_vocabulary(model_folder, 98, {0}))
    assert not compiler.compile(chain(3000)).result(timeout=30).matcher.is_error()
    compiler.close()


def test_a_process_that_was_lost_while_idle_is_started_again(
    guard: GrammarGuard, children: Children, caplog: pytest.LogCaptureFixture
) -> None:
    guard.check(GOOD)
    (process,) = children()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert guard.check(GOOD) > 0
    assert "the process that checks grammars was lost" in caplog.text


@pytest.mark.parametrize("num_chars", [1, 65_000])  # of four bytes each, which fill the connection
def test_a_frozen_process_is_replaced(
    guard: GrammarGuard, children: Children, monkeypatch: pytest.MonkeyPatch, num_chars: int
) -> None:
    long = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer", "description": "' + "\U0001f600" * num_chars + '"}')
    check_within_growing_times(guard, GOOD, monkeypatch)
    (frozen,) = children()
    frozen.suspend()
    check_within_growing_times(guard, long, monkeypatch)
    assert frozen not in children()


def check_within_growing_times(guard: GrammarGuard, grammar: Grammar, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen process is to be given up soon, and a start may take longer than that."""
    for timeout_s in (1, 2, 4, 8, 16):
        monkeypatch.setattr(guard_module, "ANSWER_TIMEOUT_S", float(timeout_s))
        with suppress(UnavailableError):
            guard.check(grammar)
            return
    pytest.fail("no check succeeded")


def test_a_vocabulary_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    guard = GrammarGuard(tmp_path, 98, {0})
    with pytest.raises(UnavailableError, match="checks grammars was lost"):
        guard.check(GOOD)
    guard.close()
