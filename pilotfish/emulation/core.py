"""An engine core without a model: the real one's intake, scheduler, KV blocks and drafts, a HashLanguageModel's words,
and the time that a cost model says.

What a step takes in, and what waits, is decided by the code that decides it in pilotfish.engine; only the
arithmetic is left out. Torch-free.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from pilotfish.config import EngineConfig
from pilotfish.emulation.drafter import Acceptance, EmulatedDrafter
from pilotfish.emulation.head import EmulatedHead
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost, StepCost
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.drafted import Drafted
from pilotfish.engine.core.in_target_drafting import InTargetDrafting
from pilotfish.engine.core.kept_rows import kept_rows
from pilotfish.engine.core.model_engine import Decided, ModelEngine
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask, ProposeTask
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.features import Features
from pilotfish.messages import Event, OpenSequence, Verdict
from pilotfish.speculation.results import Outcome
from pilotfish.speculation.trees.tree import ROOT
from pilotfish.types import Limits, LoadReport, ModelInfo

FREE = RooflineCost(weights_s=0.0, token_s=0.0)
"""Steps that take no time."""


class EmulatedCore(ModelEngine):
    """An engine core in the place of pilotfish.engine.core.engine_core.EngineCore, for either role.

    `step` computes at once what takes `step_s` seconds on the emulated hardware: who calls it waits for as long
    before the events are seen.
    """

    def __init__(
        self,
        model: ModelInfo,
        limits: Limits,
        language_model: HashLanguageModel,
        *,
        acceptance: Acceptance = 0.8,
        step_cost: StepCost = FREE,
        kv_cache_tokens: int = 1 << 17,
        max_batch_tokens: int = 8192,
        prefix_caching: bool = True,
        moves_kv: bool = True,
        feature_bytes: int = 0,
        head_cost: StepCost | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """acceptance: probability that a proposed token is the one the target would say; by position, if several.

        moves_kv: whether keys and values of accepted drafts stay; not those of a head in the draft service.
        feature_bytes: of a token's features, which verdicts bring along where they are asked for; 0: none.
        head_cost: of a pass of a target's own head, which drafts with this acceptance; None: it has none.
        """
        config = EngineConfig(
            max_draft_tokens=limits.max_draft_tokens,
            max_sequences=limits.max_sequences,
            kv_cache_tokens=kv_cache_tokens,
            max_batch_tokens=max_batch_tokens,
        )
        super().__init__(
            config,
            model,
            grammars=None,
            clock_ns=clock_ns,
            prefix_caching=prefix_caching,
            move_kv=_move_nothing if moves_kv else None,
            step_costs=StepCosts.sampled(step_cost.step_s, max_batch_tokens),
        )
        self._publishes_costs = not model.proposer or head_cost is not None
        self._language_model = language_model
        self.drafter = EmulatedDrafter(language_model, acceptance)
        """Drafts; may be replaced at any time."""
        self._step_cost = step_cost
        self._feature_bytes = feature_bytes
        self._in_target = None if head_cost is None else self._drafting_in_target(head_cost)
        self.step_s = 0.0
        """Seconds that the last step takes, with what a head in the target drafts after it."""

    def _drafting_in_target(self, cost: StepCost) -> InTargetDrafting:
        def spend(duration_s: float) -> None:
            self.step_s += duration_s

        return InTargetDrafting(
            EmulatedHead(self.drafter, cost, spend),
            self.kv_cache,
            max_context_tokens=self.model.max_context_tokens,
            step_s=lambda num_rows: self.step_costs.step_ns(num_rows) / 1e9,
            clock_ns=lambda: round(1e9 * self.step_s),
        )

    @property
    def num_sequences(self) -> int:
        """Sequences held."""
        return len(self._sequences)

    def load(self) -> LoadReport:
        return msgspec.structs.replace(super().load(), step_time_ns=round(1e9 * self.step_s))

    def step(self, max_rows: int | None = None) -> list[Event]:
        self.step_s = 0.0
        return super().step(max_rows)

    def _open(self, command: OpenSequence) -> Event | None:
        return self._intake.open(command)  # a grammar is nothing to it

    def _elapsed_ns(self, start_ns: int) -> int:
        del start_ns
        return round(1e9 * self.step_s)

    def _compute(
        self, scheduled: Sequence[ScheduledRows], verified: Sequence[ScheduledRows], drafting: Sequence[ScheduledRows]
    ) -> tuple[list[Outcome], list[Drafted]]:
        num_rows = sum(rows.num_rows for rows in scheduled)
        self.step_s = self._step_cost.step_s(len(scheduled), num_rows, sum(rows.end_place for rows in scheduled))
        return [self._outcome(rows) for rows in verified], [self._drafted(rows.sequence) for rows in drafting]

    def _keep(
        self, scheduled: Sequence[ScheduledRows], decided: Decided, verdicts: list[Verdict], elapsed_ns: int
    ) -> list[Verdict]:
        """As EngineCore: features, of the right size, and the drafts of a head in the target."""
        if self._in_target is not None:
            kept = kept_rows(scheduled, {rows.sequence.sequence_id: outcome for rows, outcome in decided})
            return self._draft_in_target(self._in_target, kept, decided, verdicts, elapsed_ns)
        if not self._feature_bytes:
            return verdicts
        rows_of = zip(verdicts, (rows for rows, _ in decided), strict=True)
        return [
            msgspec.structs.replace(verdict, features=self._features(rows.sequence, verdict))
            for verdict, rows in rows_of
        ]

    def _features(self, sequence: EngineSequence, verdict: Verdict) -> Features | None:
        """What the last verdict of a task brings along, as long as there is more to come."""
        if sequence.task is not None or verdict.finish_reason is not None:
            return None
        request, end = sequence.take_feature_request(), sequence.num_computed_tokens
        if request is None:
            return None
        num_tokens = end - request.first_position
        return Features(request.first_position, num_tokens, bytes(num_tokens * self._feature_bytes))

    def _outcome(self, rows: ScheduledRows) -> Outcome:
        """What the language model says, along the drafts for as long as they say the same."""
        sequence, drafts, sampling = rows.sequence, rows.drafts, rows.sequence.sampling
        text = list(sequence.tokens)
        children, path = drafts.shape.children, list[int]()
        node: int | None = ROOT
        while node is not None:
            token_id = self._language_model.next_token(text, sampling)
            stops = sequence.token_lists.stop_token_ids
            if token_id in stops and len(text) - sequence.num_prompt_tokens < sampling.min_tokens:
                others = sampling.allowed_token_ids or itertools.count(self._language_model.first_token_id)
                token_id = next((other for other in others if other not in stops), token_id)
            text.append(token_id)
            node = next((child for child in children[node + 1] if drafts.token_ids[child] == token_id), None)
            path += () if node is None else (node,)
        return Outcome(tuple(path), tuple(text[len(sequence.tokens) :]))

    def _drafted(self, sequence: EngineSequence) -> Drafted:
        """What the drafter thinks of next, as the sequence's task wants it."""
        guess = partial(self._drafter_of(sequence).guess, sequence)
        match sequence.task:
            case PredraftTask(growth=growth) if growth.is_choosing:
                return Drafted(candidates=[guess(path, len(path)) for path in growth.paths()])
            case PredraftTask(growth=growth):
                num_drafts = len(growth.branches[0].drafts)
                guesses = [guess(path, num_drafts) for path in growth.paths()]
            case ProposeTask(growth=TreeProposal() as growth):
                return Drafted(candidates=[guess(path, len(path))[: growth.branching] for path in growth.paths()])
            case ProposeTask() as task:
                guesses = [guess((), len(task.chain))]
            case task:
                raise AssertionError(f"{task} drafts nothing")
        return Drafted([each.draft for each in guesses], guesses)

    def _drafter_of(self, sequence: EngineSequence) -> EmulatedDrafter:
        """Who drafts what the sequence's task wants."""
        del sequence
        return self.drafter


def _move_nothing(_moves: Sequence[tuple[int, int]]) -> None:
    """There are no keys and values."""
