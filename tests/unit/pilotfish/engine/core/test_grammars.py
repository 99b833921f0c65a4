"""What becomes of grammars that are being compiled."""

from __future__ import annotations

from concurrent.futures import Future

from llguidance import LLMatcher

from pilotfish.engine.core.grammars import Grammars
from pilotfish.messages import CloseSequence, OpenSequence
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.types import Grammar, GrammarKind, SamplingParams
from tests.support.engine_events import MakeCore, settle

PROMPT = (1, 5, 9, 2, 33, 7)


class Stopped(GrammarCompiler):
    """Compiles nothing; what it is asked for stays."""

    num_deaths = 0

    def __init__(self) -> None:
        self.futures: dict[Grammar, Future[LLMatcher]] = {}

    def compile(self, grammar: Grammar, client: str = "") -> Future[LLMatcher]:
        return self.futures.setdefault(grammar, Future())


def test_a_grammar_whose_sequences_are_all_closed_is_not_compiled(make_core: MakeCore) -> None:
    stopped = Stopped()
    core = make_core(grammars=Grammars(stopped))
    shared, own = (Grammar(GrammarKind.REGEX, text) for text in ("a", "b"))
    for sequence_id, grammar in ((1, shared), (2, shared), (3, own)):
        core.submit(OpenSequence(sequence_id, PROMPT, SamplingParams(grammar=grammar), client="c"))
    core.submit(CloseSequence(1))
    core.submit(CloseSequence(3))
    assert stopped.futures[own].cancelled()
    assert not stopped.futures[shared].cancelled()
    core.submit(CloseSequence(2))
    assert stopped.futures[shared].cancelled()
    settle(core)
    assert not core.is_waiting
