"""Which sequences get their grammar, and which fail."""

from __future__ import annotations

from concurrent.futures import Future

from llguidance import LLMatcher

from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.errors import InvalidRequestError
from pilotfish.messages import OpenSequence
from pilotfish.structured.compiler import Compiled, GrammarCompiler
from pilotfish.structured.grammar import engine_grammar
from pilotfish.types import Grammar, GrammarKind, SamplingParams, SequenceErrorCode
from tests.support.small_vocabulary import SmallVocabulary

WORD = Grammar(GrammarKind.REGEX, "ab")


class ByHand(GrammarCompiler):
    """Compiles when it is told to."""

    def __init__(self) -> None:
        self.futures: list[Future[Compiled]] = []

    def compile(self, grammar: Grammar) -> Future[Compiled]:
        self.futures.append(Future())
        return self.futures[-1]


def sequence(sequence_id: int) -> EngineSequence:
    return EngineSequence(OpenSequence(sequence_id, (1, 2, 3), SamplingParams(grammar=WORD)))


def test_each_sequence_waits_for_its_own() -> None:
    compiler = ByHand()
    grammars = Grammars(compiler)
    first, second = sequence(1), sequence(2)
    for one in (first, second):
        grammars.begin(one, WORD)
    assert (grammars.is_waiting, grammars.has_ready) == (True, False)
    assert first.num_pending_rows == 2  # the prompt but its last token
    compiler.futures[1].set_result(Compiled(LLMatcher(SmallVocabulary().tokenizer(), engine_grammar(WORD)), 0))
    assert grammars.has_ready
    assert grammars.take_ready() == []
    assert (first.is_grammar_pending, second.is_grammar_pending) == (True, False)
    assert second.grammar is not None
    compiler.futures[0].set_exception(InvalidRequestError("no such grammar"))
    assert grammars.take_ready() == [(first, SequenceErrorCode.INVALID, "no such grammar")]
    assert not grammars.is_waiting


def test_a_fault_of_the_compiler_is_told() -> None:
    compiler = ByHand()
    grammars = Grammars(compiler)
    one = sequence(1)
    grammars.begin(one, WORD)
    compiler.futures[0].set_exception(OSError("no tokenizer.json"))
    ((failed, code, message),) = grammars.take_ready()
    assert (failed, code) == (one, SequenceErrorCode.INTERNAL)  # another replica may do better
    assert "no tokenizer.json" in message
