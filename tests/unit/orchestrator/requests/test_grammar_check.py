"""Grammars are checked off the event loop, each one once."""

import asyncio
import threading

import pytest

from orchestrator.requests import grammar_check
from orchestrator.requests.grammar_check import GrammarCheck
from pilotfish.errors import InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.types import Grammar, GrammarKind

FIRST, SECOND, THIRD, FOURTH, BAD = (Grammar(GrammarKind.REGEX, text) for text in ("a", "b", "c", "d", "a(b"))


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


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
        await check.check(grammar, "a")
    assert guard.checked == [FIRST, SECOND, THIRD, SECOND]  # the second was forgotten for the third


async def test_what_a_replica_would_not_keep_is_checked_again(
    guard: Guard, check: GrammarCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_check, "MAX_KNOWN_GRAMMARS", 9)
    monkeypatch.setattr(grammar_check, "MAX_KEPT_BYTES", 2)  # each takes one
    for grammar in (FIRST, SECOND, FIRST, THIRD, SECOND):
        await check.check(grammar, "a")
    assert guard.checked == [FIRST, SECOND, THIRD, SECOND]


async def test_a_bad_grammar_is_refused_every_time_and_compiled_once(guard: Guard, check: GrammarCheck) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="unclosed group") as caught:
            await check.check(BAD, "a")
        assert caught.value.param == "grammar"
    assert guard.checked == [BAD]


async def test_those_that_ask_together_have_it_checked_once(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    asking = [asyncio.create_task(check.check(FIRST, "a")) for _ in range(8)]
    await asyncio.sleep(0)
    guard.may_answer.set()
    await asyncio.gather(*asking)
    assert guard.checked == [FIRST]


async def waiting(check: GrammarCheck, *asked: tuple[str, Grammar]) -> list[asyncio.Task[float]]:
    """Clients that ask for grammars, in this order."""
    tasks = [asyncio.create_task(check.check(grammar, client_id)) for client_id, grammar in asked]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("limit", ["MAX_WAITING_PER_CLIENT", "MAX_WAITING"])
async def test_beyond_so_many_waiting_grammars_new_ones_are_refused_and_known_ones_are_not(
    guard: Guard, check: GrammarCheck, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(grammar_check, limit, 2)
    await check.check(THIRD, "a")
    guard.may_answer.clear()
    # What a client asks for once more takes no more room; the first is being checked.
    asking = await waiting(check, *(("a", grammar) for grammar in (FIRST, SECOND, FIRST, SECOND, FOURTH, SECOND)))
    with pytest.raises(ResourceExhaustedError, match="try again") as caught:
        await check.check(BAD, "a")
    assert caught.value.retry_after_s is not None
    await check.check(THIRD, "a")
    others = await waiting(check, ("b", SECOND))
    guard.may_answer.set()
    await asyncio.gather(*asking)
    is_refused = limit == "MAX_WAITING"
    assert isinstance((await asyncio.gather(*others, return_exceptions=True))[0], ResourceExhaustedError) == is_refused
    with pytest.raises(InvalidRequestError):
        await check.check(BAD, "a")
    assert [grammar for grammar in guard.checked if grammar != SECOND] == [THIRD, FIRST, FOURTH, BAD]


async def test_clients_take_turns(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    asking = await waiting(check, *(("a", regex(str(at))) for at in range(4)), ("b", FIRST), ("b", SECOND))
    guard.may_answer.set()
    await asyncio.gather(*asking)
    assert [grammar.text for grammar in guard.checked][:3] in (["0", "a", "1"], ["0", "a", "b"])


async def test_what_nobody_waits_for_any_more_is_not_checked(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    first, second, other = await waiting(check, ("a", FIRST), ("a", SECOND), ("b", SECOND))
    third, other_third = await waiting(check, ("a", THIRD), ("b", THIRD))
    for gone in (second, other, other_third):
        gone.cancel()
    await asyncio.gather(second, other, other_third, return_exceptions=True)
    guard.may_answer.set()
    await asyncio.gather(first, third)
    assert guard.checked == [FIRST, THIRD], "the second has no one, the third one of two"


async def test_only_one_of_a_clients_requests_pays_for_a_grammar(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    asking = await waiting(check, *[("a", FIRST)] * 200)
    guard.may_answer.set()
    costs_s = await asyncio.gather(*asking)
    assert [cost_s > 0 for cost_s in costs_s] == [True] + [False] * 199
    assert guard.checked == [FIRST]


async def test_one_who_leaves_during_the_check_does_not_end_it_for_others(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    gone, stays = await waiting(check, ("a", FIRST), ("b", FIRST))
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    guard.may_answer.set()
    await stays
    assert guard.checked == [FIRST]


async def test_a_guard_that_is_lost_is_asked_again_the_next_time(guard: Guard, check: GrammarCheck) -> None:
    guard.is_lost = True
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await check.check(FIRST, "a")
    guard.is_lost = False
    assert await check.check(FIRST, "a") > 0
    assert await check.check(FIRST, "a") == 0
    assert guard.checked == [FIRST] * 3


async def test_what_waits_is_refused_when_the_check_closes(guard: Guard, check: GrammarCheck) -> None:
    guard.may_answer.clear()
    asking = await waiting(check, ("a", FIRST), ("a", SECOND), ("b", FIRST), ("b", SECOND))
    await check.close()
    answers = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 30)
    assert [type(answer) for answer in answers] == [UnavailableError] * 4
    with pytest.raises(UnavailableError):
        await check.check(THIRD, "a")
    guard.may_answer.set()
    await check.close()
    assert guard.is_closed
