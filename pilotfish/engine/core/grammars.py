"""Sequences with a grammar: those whose grammar is being compiled wait, and hold up nobody."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.errors import InvalidRequestError
from pilotfish.models.store.folder import read_metadata
from pilotfish.structured.compiler import Compiled, GrammarCompiler
from pilotfish.structured.grammar import load_vocabulary
from pilotfish.structured.guard import GrammarGuard
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar, SequenceErrorCode


class Grammars:
    """The grammars of an engine's sequences. Not thread-safe; the compiler's thread is behind the futures."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        """compiler: used by nobody else."""
        self._compiler = compiler
        self._waiting: list[tuple[EngineSequence, Future[Compiled]]] = []

    @classmethod
    def of_model(cls, folder: Path, vocab_size: int) -> Grammars:
        """Grammars over the tokens of the model in a folder, whose logits are vocab_size wide."""
        eos_token_ids = read_metadata(folder).eos_token_ids
        guard = GrammarGuard(folder, vocab_size, eos_token_ids)
        return cls(GrammarCompiler(lambda: load_vocabulary(folder, vocab_size, eos_token_ids), guard))

    @property
    def num_deaths(self) -> int:
        """Grammars that a compiling process died of."""
        return self._compiler.num_deaths

    @property
    def is_waiting(self) -> bool:
        """Whether a grammar is being compiled."""
        return bool(self._waiting)

    @property
    def has_ready(self) -> bool:
        """Whether `take_ready` has something to do."""
        return any(future.done() for _, future in self._waiting)

    def begin(self, sequence: EngineSequence, grammar: Grammar, client: str) -> None:
        """Have the sequence wait until its grammar is there."""
        sequence.awaits_grammar = True
        self._waiting.append((sequence, self._compiler.compile(grammar, client)))

    def forget(self, sequence: EngineSequence) -> None:
        """The sequence waits no more; what nobody else waits for is not compiled. Idempotent."""
        if not sequence.awaits_grammar:
            return
        gone = [future for each, future in self._waiting if each is sequence]
        self._waiting = [entry for entry in self._waiting if entry[0] is not sequence]
        awaited = [future for _, future in self._waiting]
        for future in gone:
            if future not in awaited:
                future.cancel()

    def take_ready(self) -> list[tuple[EngineSequence, SequenceErrorCode, str]]:
        """Give sequences the grammars that are there; those whose grammar failed, and why. Some may be closed."""
        failed: list[tuple[EngineSequence, SequenceErrorCode, str]] = []
        still_waiting = []
        for sequence, future in self._waiting:
            if not future.done():
                still_waiting.append((sequence, future))
                continue
            error = future.exception()
            if error is not None:
                # What is no fault of the grammar's may go better on another replica.
                is_refused = isinstance(error, InvalidRequestError)
                code = SequenceErrorCode.INVALID if is_refused else SequenceErrorCode.INTERNAL
                failed.append((sequence, code, str(error) if is_refused else f"a grammar was not compiled: {error!r}"))
                continue
            compiled, num_prompt_tokens = future.result(), sequence.num_prompt_tokens
            matcher, output = compiled.matcher.deep_copy(), sequence.tokens[num_prompt_tokens:]
            sequence.follow(GrammarMatcher(matcher, num_prompt_tokens, output, vocabulary=compiled.vocabulary))
        self._waiting = still_waiting
        return failed
