"""The target answers prompts plainly, and a drafter drafts after every token of the answers, unheeded.

Drafters are the engines' own, with their caches, sampling and vocabulary: what is noted is what rounds would have
verified.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import ne
from typing import Protocol

import msgspec

from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.draft_costs import PATIENT
from pilotfish.engine.core.drafts import NO_DRAFTS, Drafts
from pilotfish.engine.core.engine import WAITING_POLL_S
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import DraftWish, InTargetDrafter
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.errors import ConfigError
from pilotfish.examine.drafted_answer import DraftedAnswer, RehearsedDraft
from pilotfish.examine.drafted_tree import DraftedTree
from pilotfish.messages import CloseSequence, Decode, Event, OpenSequence, Proposal, Propose, SequenceError, Verdict
from pilotfish.types import Limits, ModelInfo, SamplingParams, TreeRequest

_NOISE_WEIGHT = 2
"""On log-probabilities of a tree's path above temperature 0, for what a chain would say: as draft_growth has it."""


class FreeRows(StepCosts):
    """Costs of steps that say that rows are free, for as long as drafts are watched: no tree is smaller for them."""

    def step_ns(self, num_rows: float) -> float:
        del num_rows
        return 1.0

    def add(self, num_rows: int, num_prefill_rows: int, step_ns: float) -> float:
        del num_rows, num_prefill_rows, step_ns
        return 0.0


@dataclass(frozen=True)
class Question:
    """A prompt and how it is answered."""

    category: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    answer: tuple[int, ...] = ()
    """An earlier answer, which is followed; empty: the target gives one."""

    def num_tokens(self, max_tokens: int) -> int:
        """Tokens of its answer, at most."""
        return min(max_tokens, len(self.answer)) if self.answer else max_tokens


OnProgress = Callable[[int], None]
"""Called with the number of tokens that have come since the last call."""


class DraftWatch:
    """See InTargetDrafter. Notes what another one drafts, and how long it takes; nothing of it is verified."""

    def __init__(self, drafter: InTargetDrafter, clock: Callable[[], float] = time.perf_counter) -> None:
        self._drafter = drafter
        self._clock = clock
        self.name = drafter.name
        self.max_draft_tokens = drafter.max_draft_tokens
        self.drafts: dict[int, dict[int, Drafts]] = defaultdict(dict)
        """Drafts by sequence, and by its length when they were made."""
        self.took_s = 0.0
        """Time of the last step's drafts."""

    @property
    def num_rounds(self) -> int:
        return self._drafter.num_rounds

    def allocate(self, num_blocks: int) -> int:
        return self._drafter.allocate(num_blocks)

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> Sequence[Drafts]:
        patient = {index: msgspec.structs.replace(wish, thresholds=PATIENT) for index, wish in wishes.items()}
        start_s = self._clock()
        drafts = self._drafter.follow(kept, patient)
        self.took_s = self._clock() - start_s
        for wish, each in zip(wishes.values(), drafts, strict=True):
            self.drafts[wish.sequence.sequence_id][len(wish.sequence.tokens)] = each
        return [NO_DRAFTS] * len(wishes)


@dataclass
class _Asked:
    question: Question
    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    is_whole: bool = False
    shaped: list[bool] = field(default_factory=list)


def answer_all(
    core: EngineCore,
    questions: Sequence[Question],
    max_tokens: int,
    num_draft_tokens: int,
    watch: DraftWatch | None = None,
    on_progress: OnProgress = lambda _: None,
    *,
    tree: TreeRequest | None = None,
) -> list[DraftedAnswer]:
    """The answers of an idle target, of max_tokens tokens at most, with the drafts that were watched. Where a question
    brings its answer, the target computes that one.

    tree: how drafts may branch; None: they are chains.

    Raises ConfigError when the engine refuses a question.
    """
    waiting = list(enumerate(questions, start=1))[::-1]
    under_way: dict[int, _Asked] = {}
    done: dict[int, DraftedAnswer] = {}
    core.given = {at: (*each.token_ids, *each.answer) for at, each in enumerate(questions, start=1) if each.answer}
    if watch is not None:
        watch.drafts.clear()
    while waiting or under_way:
        while waiting and len(under_way) < core.limits.max_sequences:
            sequence_id, question = waiting.pop()
            under_way[sequence_id] = asked = _Asked(question, question.num_tokens(max_tokens))
            num_tokens = asked.max_tokens + num_draft_tokens + 1
            _ask(core, sequence_id, question, num_tokens, num_draft_tokens if watch else 0, tree)
        if not core.has_work and core.is_waiting and any(each.question.sampling.grammar for each in under_way.values()):
            time.sleep(WAITING_POLL_S)  # a grammar is being compiled
            continue
        if not core.has_work:
            raise ConfigError("the target does not go on with an answer: raise target.engine.kv_cache_tokens")
        for verdict in _verdicts(core.step()):
            if verdict.sequence_id not in under_way:
                continue
            asked = under_way[verdict.sequence_id]
            asked.token_ids.extend(verdict.token_ids)
            likeliest = (each.top_token_ids[0] for each in verdict.logprobs if each.top_token_ids)
            asked.shaped.extend(map(ne, verdict.token_ids, likeliest))
            asked.is_whole = verdict.finish_reason is not None
            on_progress(len(verdict.token_ids))
            if asked.is_whole or len(asked.token_ids) >= asked.max_tokens:
                core.submit(CloseSequence(verdict.sequence_id))
                del under_way[verdict.sequence_id]
                drafts = {} if watch is None else watch.drafts.pop(verdict.sequence_id, {})
                done[verdict.sequence_id] = _answer(asked, drafts)
    core.given = {}
    return [done[sequence_id] for sequence_id in sorted(done)]


def _ask(
    core: EngineCore,
    sequence_id: int,
    question: Question,
    num_tokens: int,
    num_draft_tokens: int,
    tree: TreeRequest | None,
) -> None:
    sampling = msgspec.structs.replace(question.sampling, max_tokens=num_tokens)
    core.submit(OpenSequence(sequence_id, question.token_ids, sampling))
    core.submit(Decode(sequence_id, len(question.token_ids), num_tokens, num_draft_tokens, tree=tree))


def _answer(asked: _Asked, drafts: Mapping[int, Drafts]) -> DraftedAnswer:
    length, max_tokens = len(asked.question.token_ids), asked.max_tokens
    return DraftedAnswer(
        category=asked.question.category,
        temperature=asked.question.sampling.temperature,
        num_prompt_tokens=length,
        token_ids=tuple(asked.token_ids[:max_tokens]),
        shaped=tuple(asked.shaped[:max_tokens]),
        is_whole=asked.is_whole and len(asked.token_ids) <= max_tokens,
        drafts={at - length: _draft(each, asked.question.sampling) for at, each in drafts.items()},
    )


def _draft(drafts: Drafts, sampling: SamplingParams) -> RehearsedDraft:
    """A chain, or a tree and the chain in it."""
    if not drafts.log_probs:
        return RehearsedDraft(drafts.token_ids, drafts.confidences)
    tree = DraftedTree(drafts.token_ids, drafts.shape.parents, drafts.log_probs)
    nodes, weight = tree.chain(), 1 if sampling.is_greedy else _NOISE_WEIGHT
    sure = (math.exp(weight * tree.log_probs[node]) for node in nodes)
    return RehearsedDraft(tuple(tree.token_ids[node] for node in nodes), tuple(sure), tree)


class DraftEngine(Protocol):
    """What a draft model's engine, or what translates for one, is asked for here."""

    model: ModelInfo
    limits: Limits

    def submit(self, command: OpenSequence | Propose | CloseSequence) -> None: ...

    def step(self) -> list[Event]: ...


def draft_all(
    core: DraftEngine,
    questions: Sequence[Question],
    answers: Sequence[DraftedAnswer],
    num_draft_tokens: int,
    on_progress: OnProgress = lambda _: None,
) -> list[DraftedAnswer]:
    """The answers with what a draft model's idle engine drafts after each of their tokens.

    Raises ConfigError when the engine fails.
    """
    drafts: list[dict[int, RehearsedDraft]] = [{} for _ in answers]
    reach = [core.model.max_context_tokens - len(question.token_ids) for question in questions]
    waiting = [index for index, answer in enumerate(answers) if min(len(answer.token_ids), reach[index]) > 1][::-1]
    under_way = set[int]()
    while waiting or under_way:
        while waiting and len(under_way) < core.limits.max_sequences:
            index = waiting.pop()
            sampling = msgspec.structs.replace(questions[index].sampling, max_tokens=len(answers[index].token_ids) + 64)
            core.submit(OpenSequence(index, questions[index].token_ids, sampling))
            under_way.add(index)
            _propose(core, index, questions[index], answers[index], 1, num_draft_tokens)
        for event in core.step():
            if isinstance(event, SequenceError):
                raise ConfigError(f"the draft model cannot draft: {event.message}")
            if not isinstance(event, Proposal):
                continue
            index = event.sequence_id
            place = event.base_length - len(questions[index].token_ids)
            drafts[index][place] = RehearsedDraft(event.draft_token_ids)
            on_progress(1)
            # As in service, nothing is drafted beyond its context.
            if place + 1 < min(len(answers[index].token_ids), reach[index]):
                _propose(core, index, questions[index], answers[index], place + 1, num_draft_tokens)
            else:
                core.submit(CloseSequence(index))
                under_way.discard(index)
    return [replace(answer, drafts=own) for answer, own in zip(answers, drafts, strict=True)]


def _propose(
    core: DraftEngine, sequence_id: int, question: Question, answer: DraftedAnswer, place: int, num_draft_tokens: int
) -> None:
    base_length = len(question.token_ids) + place
    core.submit(Propose(sequence_id, base_length, answer.token_ids[place - 1 : place], num_draft_tokens))


def _verdicts(events: Sequence[Event]) -> Iterator[Verdict]:
    for event in events:
        if isinstance(event, SequenceError):
            raise ConfigError(f"the target refuses a prompt: {event.message}")
        if isinstance(event, Verdict):
            yield event
