"""Grammars are checked off the event loop, each good one once."""

from __future__ import annotations

import pytest

from orchestrator.requests import grammar_check
from orchestrator.requests.grammar_check import GrammarCheck
from pilotfish.errors import InvalidRequestError
from pilotfish.types import Grammar, GrammarKind


async def test_a_good_grammar_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Grammar] = []
    monkeypatch.setattr(grammar_check, "check_grammar", checked.append)
    monkeypatch.setattr(grammar_check, "MAX_KNOWN_GRAMMARS", 2)
    check = GrammarCheck()
    first, second, third = (Grammar(GrammarKind.REGEX, text) for text in ("a", "b", "c"))
    for grammar in (first, second, first, third, first, second):
        await check.check(grammar)
    assert checked == [first, second, third, second]  # the second was forgotten for the third


async def test_a_bad_grammar_is_refused_every_time() -> None:
    check = GrammarCheck()
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="regular expression"):
            await check.check(Grammar(GrammarKind.REGEX, "a(b"))
