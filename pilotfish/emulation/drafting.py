"""The drafting half of an emulated engine: token by token as the real one, ahead of the target as well.

One step drafts the next token of every proposal that was asked for. Only where none is, it goes on with what
is drafted ahead: first the bonus after each sequence's drafts, then one token of each prepared draft.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.messages import PreparedDrafts, Proposal, Propose
from pilotfish.speculation.lookup.index import one_hot_probs
from pilotfish.speculation.trees.fan_out import MAX_RIVALS, likeliest_outcomes, rivals, split_budget
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.speculation.trees.tree import ROOT
from pilotfish.types import SamplingParams

Acceptance = float | Sequence[float]
"""Probability that a draft token is the target's if all before it are; by position, the last for further ones."""

RIVAL_ACCEPTANCE = 0.5
"""Probability that the target's token is the drafter's next best where the best one was wrong, and so on."""


class Phase(enum.Enum):
    """What a sequence's next draft step does."""

    PROPOSE = enum.auto()
    """The next token of its proposal."""
    BONUS = enum.auto()
    """What follows the whole proposal."""
    PREPARE = enum.auto()
    """The next token of each draft made ahead."""
    REST = enum.auto()


@dataclass(slots=True)
class Branch:
    """A draft in the making."""

    assumed_token_ids: tuple[int, ...]
    """On top of the committed tokens; none of what was asked for."""
    context: list[int]
    """Committed tokens, assumed ones, and the drafts so far."""
    drafts: list[int] = field(default_factory=list)

    def truncated(self, num_drafts: int) -> Branch:
        """With the first num_drafts drafts."""
        num_cut = max(0, len(self.drafts) - num_drafts)
        end = len(self.context) - num_cut
        return Branch((), self.context[:end], self.drafts[:num_drafts])


@dataclass(slots=True)
class Job:
    """A sequence's Propose and what is drafted ahead of it."""

    request: Propose
    sampling: SamplingParams
    trunk: Branch
    phase: Phase
    branches: list[Branch] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Token rows of the next step."""
        return len(self.branches) if self.phase is Phase.PREPARE else int(self.phase is not Phase.REST)

    def branch_of(self, command: Propose, context: Sequence[int]) -> Branch | None:
        """The draft that was made ahead for just what this command says is committed."""
        assumed = tuple(context[self.request.base_length :])
        if command.base_length <= self.request.base_length or self.request.base_length > len(context):
            return None
        return next((branch for branch in self.branches if branch.assumed_token_ids == assumed), None)


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
        self._proposing: dict[int, Job] = {}
        self._going_ahead: dict[int, Job] = {}
        self._ready: list[Proposal | PreparedDrafts] = []

    @property
    def has_work(self) -> bool:
        return bool(self._ready or self._proposing or self._going_ahead)

    @property
    def step_size(self) -> StepSize:
        """Of the next step."""
        batch = self._next_batch()
        num_context_tokens = sum(len(job.trunk.context) for job in batch)
        return StepSize(len(batch), sum(job.num_rows for job in batch), num_context_tokens)

    def propose(self, command: Propose, committed: Sequence[int], sampling: SamplingParams) -> None:
        """Take a Propose. `committed` ends at its base_length and is not changed."""
        last = self._jobs.get(command.sequence_id)
        branch = None if last is None else last.branch_of(command, committed)
        trunk = Branch((), list(committed)) if branch is None else branch.truncated(command.num_draft_tokens)
        job = Job(command, sampling, trunk, Phase.PROPOSE)
        self._enter(job, Phase.PROPOSE)
        if len(trunk.drafts) == command.num_draft_tokens:
            self._answer(job)

    def forget(self, sequence_id: int) -> None:
        """Drop a sequence's drafts, made ahead or not. Idempotent."""
        for jobs in (self._jobs, self._proposing, self._going_ahead):
            jobs.pop(sequence_id, None)
        self._ready = [event for event in self._ready if event.sequence_id != sequence_id]

    def step(self) -> list[Proposal | PreparedDrafts]:
        """One draft step; what it completes, and the proposals that needed none."""
        for job in self._next_batch():
            self._advance(job)
        events, self._ready = self._ready, []
        return events

    def _next_batch(self) -> list[Job]:
        """Drafting ahead waits for every proposal."""
        return list((self._proposing or self._going_ahead).values())

    def _advance(self, job: Job) -> None:
        match job.phase:
            case Phase.PROPOSE:
                self._extend(job.trunk, job.sampling)
                if len(job.trunk.drafts) == job.request.num_draft_tokens:
                    self._answer(job)
            case Phase.BONUS:
                self._fan_out(job)
            case Phase.PREPARE:
                self._prepare(job)
            case Phase.REST:
                pass

    def _enter(self, job: Job, phase: Phase) -> None:
        sequence_id, job.phase = job.request.sequence_id, phase
        self._jobs[sequence_id] = job
        for phases, jobs in (((Phase.PROPOSE,), self._proposing), ((Phase.BONUS, Phase.PREPARE), self._going_ahead)):
            jobs.pop(sequence_id, None)
            if phase in phases:
                jobs[sequence_id] = job

    def _answer(self, job: Job) -> None:
        request = job.request
        if not request.is_prepared:
            self._ready.append(self._proposal(job, job.trunk))
        may_go_on = request.ahead is not None and request.tree is None
        self._enter(job, Phase.BONUS if may_go_on else Phase.REST)

    def _fan_out(self, job: Job) -> None:
        """Choose the outcomes to draft for, once the bonus has candidates, too."""
        ahead, trunk = job.request.ahead, job.trunk
        assert ahead is not None
        num_outcomes, _ = split_budget(ahead.max_tokens, job.request.num_draft_tokens)
        committed = trunk.context[: job.request.base_length]
        at_positions = []
        # What the drafter thought of at each position is known only now that it matters: it costs time to make up.
        for position, draft in enumerate((*trunk.drafts, None)):
            context = trunk.context[: len(committed) + position]
            at_positions.append(rivals(self._candidates(context, job.sampling, position), draft))
        outcomes = likeliest_outcomes(ahead.acceptance, at_positions, num_outcomes)
        for outcome in outcomes:
            assumed = (*trunk.drafts[: outcome.num_accepted_tokens], outcome.token_id)
            job.branches.append(Branch(assumed, [*committed, *assumed]))
        self._enter(job, Phase.PREPARE if job.branches else Phase.REST)

    def _prepare(self, job: Job) -> None:
        assert job.request.ahead is not None
        _, depth = split_budget(job.request.ahead.max_tokens, job.request.num_draft_tokens)
        for branch in job.branches:
            self._extend(branch, job.sampling)
        if len(job.branches[0].drafts) == depth:
            self._ready.append(self._prepared(job))
            self._enter(job, Phase.REST)

    def _extend(self, branch: Branch, sampling: SamplingParams) -> None:
        position, context = len(branch.drafts), branch.context
        token_id = self._language_model.draft_token(context, sampling, self._acceptance_at(position))
        branch.drafts.append(token_id)
        context.append(token_id)

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

    def _proposal(self, job: Job, branch: Branch) -> Proposal:
        request, drafted = job.request, tuple(branch.drafts)
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

    def _prepared(self, job: Job) -> PreparedDrafts:
        branches = job.branches
        drafted = tuple(token_id for branch in branches for token_id in branch.drafts)
        return PreparedDrafts(
            sequence_id=job.request.sequence_id,
            base_length=job.request.base_length,
            verified_token_ids=tuple(job.trunk.drafts),
            num_accepted_tokens=tuple(len(branch.assumed_token_ids) - 1 for branch in branches),
            own_token_ids=tuple(branch.assumed_token_ids[-1] for branch in branches),
            draft_token_ids=drafted,
            draft_probs=one_hot_probs(drafted, job.sampling),
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
