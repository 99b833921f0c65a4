"""CPU time that grammars take of an engine's thread, for answers that are known: without drafts and with what they
force drafted."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from llguidance import LLMatcher, LLTokenizer

from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.response_format import wanted_grammar
from pilotfish.drafter_registry import room
from pilotfish.models.store.folder import read_metadata
from pilotfish.structured.grammar import compile_grammar, load_vocabulary
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar
from schemas.forms import FormRequest

Written = tuple[FormRequest, Sequence[int]]
"""A request and the tokens of its answer."""


def grammar_of(request: FormRequest, model: str) -> Grammar:
    body = request.body(model, 1)
    chat = msgspec.convert(body, ChatCompletionRequest)
    grammar = chat.tool_use().grammar if request.function else wanted_grammar(body["response_format"], None)
    assert grammar is not None
    return grammar


def mask_costs(folder: Path, model: str, answers: Sequence[Written], *, max_draft_tokens: int) -> dict[str, float]:
    """Microseconds of a token, over all answers, of masks alone (`plain`) and with forced text drafted (`drafted`)."""
    metadata = read_metadata(folder)
    vocabulary = load_vocabulary(folder, metadata.vocab_size, metadata.eos_token_ids)
    compiled = [compile_grammar(vocabulary, grammar_of(request, model)) for request, _ in answers]
    drafter = room("grammar", "draft").GrammarDrafter()

    def drafted(matcher: GrammarMatcher, token_ids: Sequence[int]) -> None:
        length = 0
        while length < len(token_ids):
            span = drafter.draft(matcher, token_ids[max(0, length - 8) : length] or [0], max_draft_tokens)
            num_tokens = 0
            for place in range(len(span.token_ids) + 1):
                matcher.allowed(span.token_ids[:place])
            while span.token_ids[num_tokens : num_tokens + 1] == tuple(token_ids[length : length + 1]) != ():
                length, num_tokens = length + 1, num_tokens + 1
                matcher.append(token_ids[length - 1 : length])
            drafter.learn(span, token_ids[length - num_tokens : length + 1])
            matcher.append(token_ids[length : length + 1])
            length += 1

    ways: dict[str, Callable[[GrammarMatcher, Sequence[int]], None]] = {"plain": _plain, "drafted": drafted}
    return {name: _us_per_token(way, compiled, vocabulary, answers) for name, way in ways.items()}


def _plain(matcher: GrammarMatcher, token_ids: Sequence[int]) -> None:
    for token_id in token_ids:
        matcher.allowed()
        matcher.append([token_id])


def _us_per_token(
    way: Callable[[GrammarMatcher, Sequence[int]], None],
    compiled: Sequence[LLMatcher],
    vocabulary: LLTokenizer,
    answers: Sequence[Written],
) -> float:
    start_s = time.thread_time()
    for matcher, (_, token_ids) in zip(compiled, answers, strict=True):
        way(GrammarMatcher(matcher.deep_copy(), 0, vocabulary=vocabulary), token_ids)
    return 1e6 * (time.thread_time() - start_s) / sum(len(token_ids) for _, token_ids in answers)
