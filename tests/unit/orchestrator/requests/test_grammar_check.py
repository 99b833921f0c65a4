"""Grammars are checked off the event loop, each one once."""

import asyncio
import threading

import pytest

from orchestrator.requests import grammar_check
from orchestrator.requests.grammar_check import GrammarCheck
from pilotfish.errors import InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.types import Grammar, GrammarKind

FIRST, SECOND, THIRD, BAD = (Grammar(GrammarKind.REGEX, text) for text in ("a", "b", "c", "a(b"))


class Guard:
    """Refuses BAD, and remembers what it was asked."""

    def __init__(self) -> None:
        self.checked: list[Grammar] = []
        self.is_lost = self.is_closed = False
        self.num_deaths = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def check(self, grammar: Grammar) -> int:
        self.may_answer.wait(30)
        self.checked.append(grammar)
        if self.is_lost:
            raise UnavailableError("lost")
        if grammar == BAD:
            raise InvalidRequestError("unclosed group", param="grammar")
        return 1

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def check(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> GrammarCheck:
    monkeypatch.setattr(grammar_check, "MAX_KNOWN_GRAMMARS", 2)
    return GrammarCheck(guard)


async def test_a_grammar_is_checked_once_while_it_is_known(guard: Guard, check: GrammarCheck) -> None:
    for grammar in (FIRST, SECOND, FIRST, THIRD, FIRST, SECOND):
        await check.check(grammar)
    assert guard.checked == [FIRST, SECOND, THIRD, SECOND]  # the second was forgotten for the third


async def test_a_bad_grammar_is_refused_every_time_and_compiled_once(guard: Guard, check: GrammarCheck) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="unclosed group") as caught:
            await check.check(BAD)
        assert caught.value.param == "grammar"
    assert guard.checked == [BAD]


async def test_those_that_ask_together_have_it_checked_once(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    asking = [asyncio.create_task(check.check(FIRST)) for _ in range(8)]
    await asyncio.sleep(0)
    guard.may_answer.set()
    await asyncio.gather(*asking)
    assert guard.checked == [FIRST]


async def test_beyond_so_many_waiting_grammars_new_ones_are_refused_and_known_ones_are_not(
    guard: Guard, check: GrammarCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_check, "MAX_UNDER_WAY", 2)
    await check.check(THIRD)
    guard.may_answer.clear()
    asking = [asyncio.create_task(check.check(grammar)) for grammar in (FIRST, SECOND, FIRST, SECOND, FIRST)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError, match="try again") as caught:
        await check.check(BAD)
    assert caught.value.retry_after_s is not None
    await check.check(THIRD)
    guard.may_answer.set()
    await asyncio.gather(*asking)
    with pytest.raises(InvalidRequestError):
        await check.check(BAD)
    assert guard.checked == [THIRD, FIRST, SECOND, BAD]
