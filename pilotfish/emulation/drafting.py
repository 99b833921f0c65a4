"""The drafting half of an emulated engine: token by token as the real one, ahead of the target as well.

One step drafts the next token of every proposal that was asked for. Only where none is, it goes on with what
is drafted ahead: first the bonus after each sequence's drafts, then one token of each prepared draft.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.engine.core.ahead_growth import AheadGrowth
from pilotfish.engine.core.drafts import DraftedChain
from pilotfish.messages import PreparedDrafts, Proposal, Propose
from pilotfish.speculation.lookup.index import one_hot_probs
from pilotfish.speculation.trees.fan_out import MAX_RIVALS
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.speculation.trees.tree import ROOT
from pilotfish.types import SamplingParams

Acceptance = float | Sequence[float]
"""Probability that a draft token is the target's if all before it are; by position, the last for further ones."""

RIVAL_ACCEPTANCE = 0.5
"""Probability that the target's token is the drafter's next best where the best one was wrong, and so on."""


@dataclass(slots=True)
class Job:
    """A sequence's Propose and what is drafted ahead of it."""

    request: Propose
    sampling: SamplingParams
    context: list[int]
    """Committed tokens and the drafts so far."""
    goes_ahead: bool = False
    """Whether it is answered, and there is more to draft."""
    growth: AheadGrowth | None = None
    """What is drafted ahead; None: not begun."""
    branch_contexts: list[list[int]] = field(default_factory=list)
    """The text of each of its branches."""

    @property
    def drafts(self) -> list[int]:
        return self.context[self.request.base_length :]

    @property
    def is_proposing(self) -> bool:
        return len(self.context) < self.request.base_length + self.request.num_draft_tokens

    @property
    def num_rows(self) -> int:
        """Token rows of the next step."""
        return 1 if self.growth is None else self.growth.num_logit_rows

    def drafted_after(self, committed: Sequence[int]) -> list[int]:
        """What was drafted ahead for exactly this text."""
        if self.growth is None:
            return []
        _, branch = self.growth.follow(committed[self.request.base_length :])
        return [] if branch is None else branch.drafts.token_ids


class StepSize(NamedTuple):
    """What a latency model asks for."""

    num_sequences: int
    num_tokens: int
    """Token rows."""
    num_context_tokens: int
    """Of all its sequences."""


class EmulatedDrafting:
    """Drafts of the sequences of one emulated engine."""

    def __init__(self, language_model: HashLanguageModel, acceptance: Acceptance) -> None:
        self._language_model = language_model
        self._acceptance = (acceptance,) if isinstance(acceptance, int | float) else tuple(acceptance)
        self._jobs: dict[int, Job] = {}
        self._ready: list[Proposal | PreparedDrafts] = []

    @property
    def has_work(self) -> bool:
        return bool(self._ready or self._next_batch())

    @property
    def step_size(self) -> StepSize:
        """Of the next step."""
        batch = self._next_batch()
        num_context_tokens = sum(len(job.context) for job in batch)
        return StepSize(len(batch), sum(job.num_rows for job in batch), num_context_tokens)

    def propose(self, command: Propose, committed: Sequence[int], sampling: SamplingParams) -> None:
        """Take a Propose. `committed` ends at its base_length and is not changed."""
        last = self._jobs.get(command.sequence_id)
        drafts = [] if last is None else last.drafted_after(committed)[: command.num_draft_tokens]
        job = self._jobs[command.sequence_id] = Job(command, sampling, [*committed, *drafts])
        if not job.is_proposing:
            self._answer(job)

    def forget(self, sequence_id: int) -> None:
        """Drop a sequence's drafts, made ahead or not. Idempotent."""
        self._jobs.pop(sequence_id, None)
        self._ready = [event for event in self._ready if event.sequence_id != sequence_id]

    def step(self) -> list[Proposal | PreparedDrafts]:
        """One draft step; what it completes, and the proposals that needed none."""
        for job in self._next_batch():
            if job.is_proposing:
                self._draft(job)
            elif job.growth is None:
                self._choose(job)
            else:
                self._grow(job, job.growth)
        events, self._ready = self._ready, []
        return events

    def _next_batch(self) -> list[Job]:
        """Drafting ahead waits for every proposal."""
        jobs = self._jobs.values()
        return [job for job in jobs if job.is_proposing] or [job for job in jobs if job.goes_ahead]

    def _draft(self, job: Job) -> None:
        self._extend(job.context, job.sampling, len(job.drafts))
        if not job.is_proposing:
            self._answer(job)

    def _answer(self, job: Job) -> None:
        if not job.request.is_prepared:
            self._ready.append(self._proposal(job))
        job.goes_ahead = job.request.ahead is not None and job.request.tree is None

    def _choose(self, job: Job) -> None:
        """Choose the outcomes to draft for, once the bonus has candidates, too."""
        assert job.request.ahead is not None
        base_length, drafts = job.request.base_length, job.drafts
        # What the drafter thought of at each position is known only now that it matters: it costs time to make up.
        *candidates, bonus = (
            self._candidates(job.context[: base_length + position], job.sampling, position)
            for position in range(len(drafts) + 1)
        )
        growth = job.growth = AheadGrowth(DraftedChain(drafts, [], candidates), job.request.ahead)
        growth.choose(bonus)
        job.branch_contexts = [[*job.context[:base_length], *path] for path in growth.paths()]
        job.goes_ahead = bool(growth.branches)

    def _grow(self, job: Job, growth: AheadGrowth) -> None:
        position = len(growth.branches[0].drafts)
        drafted = [self._extend(context, job.sampling, position) for context in job.branch_contexts]
        if growth.extend([(token_id, None) for token_id in drafted], [[]] * len(drafted)):
            prepared = growth.prepared(job.request.sequence_id, job.request.base_length)
            probs = one_hot_probs(prepared.draft_token_ids, job.sampling)
            self._ready.append(msgspec.structs.replace(prepared, draft_probs=probs))
            job.goes_ahead = False

    def _extend(self, context: list[int], sampling: SamplingParams, position: int) -> int:
        """Append the next draft of a text; position: how many drafts it ends with."""
        token_id = self._language_model.draft_token(context, sampling, self._acceptance_at(position))
        context.append(token_id)
        return token_id

    def _acceptance_at(self, position: int) -> float:
        return self._acceptance[min(position, len(self._acceptance) - 1)]

    def _candidates(self, context: Sequence[int], sampling: SamplingParams, position: int) -> list[Candidate]:
        """The drafter's own pick and its next best ones."""
        model, acceptance = self._language_model, self._acceptance_at(position)
        first = model.draft_token(context, sampling, acceptance)
        truth = model.next_token(context, sampling)
        others = model.wrong_tokens(truth, first, MAX_RIVALS)
        if first != truth:
            place = model.rank(context, sampling, RIVAL_ACCEPTANCE)
            if place < len(others):
                others[place] = truth
        wrong = 1 - acceptance
        shares = [RIVAL_ACCEPTANCE * (1 - RIVAL_ACCEPTANCE) ** rank for rank in range(len(others))]
        ranked = zip((first, *others), (acceptance, *(wrong * share for share in shares)), strict=True)
        return [Candidate(token_id, math.log(max(prob, 1e-9))) for token_id, prob in ranked]

    def _proposal(self, job: Job) -> Proposal:
        request, drafted = job.request, tuple(job.drafts)
        parents: tuple[int, ...] = ()
        if request.tree is not None:
            drafted, parents = self._with_siblings(drafted, request.tree.max_nodes)
        return Proposal(
            sequence_id=request.sequence_id,
            base_length=request.base_length,
            draft_token_ids=drafted,
            draft_probs=one_hot_probs(drafted, job.sampling),
            parents=parents,
        )

    def _with_siblings(self, chain: Sequence[int], max_nodes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids and parents of a tree: another token before each of the chain's, as far as the nodes last."""
        first, size = self._language_model.first_token_id, self._language_model.vocab_size
        drafted: list[int] = []
        parents: list[int] = []
        parent = ROOT
        for token_id in chain[: max_nodes // 2]:
            drafted += [token_id + 1 if token_id + 1 < size else first, token_id]
            parents += [parent, parent]
            parent = len(drafted) - 1
        return tuple(drafted), tuple(parents)
