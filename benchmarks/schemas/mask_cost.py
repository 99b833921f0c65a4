"""CPU time that grammars take of an engine's thread, for answers that are known: without drafts and with what they
force drafted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.response_format import wanted_grammar
from pilotfish.drafter_registry import room
from pilotfish.engine.core.forced_drafts import ForcedTokens
from pilotfish.models.store.folder import read_metadata
from pilotfish.speculation.common_prefix import num_common_tokens
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


@dataclass(slots=True)
class GrammarCosts:
    """CPU time of an engine's thread, in microseconds of an output token."""

    plain_us: float
    """Masks, without drafts."""
    masks_us: float
    """Masks, with what is forced drafted."""
    drafting_us: float
    """Finding what is forced, and splitting it."""


def grammar_costs(folder: Path, model: str, answers: Sequence[Written], *, max_draft_tokens: int) -> GrammarCosts:
    metadata = read_metadata(folder)
    vocabulary = load_vocabulary(folder, metadata.vocab_size, metadata.eos_token_ids)
    compiled = [compile_grammar(vocabulary, grammar_of(request, model)) for request, _ in answers]
    drafter = room("grammar", "draft").GrammarDrafter()
    plain_s = masks_s = drafting_s = 0.0
    for _ in range(2):  # the first time the drafter learns how the model splits text
        plain_s = masks_s = drafting_s = 0.0
        for matcher, (_, token_ids) in zip(compiled, answers, strict=True):
            plain_s += _plain_s(GrammarMatcher(matcher.deep_copy(), 0, vocabulary=vocabulary), token_ids)
            drafted = GrammarMatcher(matcher.deep_copy(), 0, vocabulary=vocabulary)
            own = _drafted_s(drafted, drafter, token_ids, max_draft_tokens)
            masks_s, drafting_s = masks_s + own[0], drafting_s + own[1]
    us_per_token = 1e6 / sum(len(token_ids) for _, token_ids in answers)
    return GrammarCosts(plain_s * us_per_token, masks_s * us_per_token, drafting_s * us_per_token)


def _plain_s(matcher: GrammarMatcher, token_ids: Sequence[int]) -> float:
    start_s = time.thread_time()
    for token_id in token_ids:
        matcher.allowed()
        matcher.append([token_id])
    return time.thread_time() - start_s


def _drafted_s(
    matcher: GrammarMatcher, drafter: ForcedTokens, token_ids: Sequence[int], max_draft_tokens: int
) -> tuple[float, float]:
    """(of masks, of drafting)."""
    masks_s = drafting_s = 0.0
    length = 0
    while length < len(token_ids):
        start_s = time.thread_time()
        span = drafter.draft(matcher, token_ids[max(0, length - 8) : length] or [0], max_draft_tokens, is_greedy=True)
        drafted_s = time.thread_time()
        for place in range(len(span.token_ids) + 1):
            matcher.allowed(span.token_ids[:place])
        masked_s = time.thread_time()
        num_accepted = num_common_tokens(span.token_ids, token_ids[length:])
        committed = token_ids[length : length + num_accepted + 1]
        drafter.learn(span, committed)
        matcher.append(committed)
        length += len(committed)
        masks_s += masked_s - drafted_s
        drafting_s += drafted_s - start_s + time.thread_time() - masked_s
    return masks_s, drafting_s
