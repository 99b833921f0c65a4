"""The engine of a model, role-blind: verifying for a target and proposing for a drafter are tasks over the same
sequences, scheduler and cache. Torch-free: what the rows of a step say is somebody else's to compute.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pilotfish.config import EngineConfig
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.drafted import Drafted, add_drafted
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.forced_drafts import ForcedDrafts, ForcedTokens
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafting
from pilotfish.engine.core.intake import MoveKV
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.core.scheduler import ScheduledRows, Scheduler
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.messages import Event, Verdict
from pilotfish.speculation.results import Outcome
from pilotfish.step_table import StepTable
from pilotfish.types import BLOCK_SIZE, LoadReport, ModelInfo, SequenceErrorCode

_FREE = 1.05
"""A step may take so many times as long for drafting ahead, if somebody waits for the rest of it."""

Decided = Sequence[tuple[ScheduledRows, Outcome]]
"""What a step decided for the sequences that decode."""


class ModelEngine(Engine):
    """See the module and Engine."""

    def __init__(
        self,
        config: EngineConfig,
        model: ModelInfo,
        *,
        grammars: Grammars | None,
        clock_ns: Callable[[], int],
        prefix_caching: bool,
        move_kv: MoveKV | None,
        step_costs: StepCosts,
        forced_tokens: ForcedTokens | None = None,
    ) -> None:
        """forced_tokens: drafts what grammars force; None: nobody does."""
        super().__init__(
            config, model, grammars=grammars, clock_ns=clock_ns, prefix_caching=prefix_caching, move_kv=move_kv
        )
        self._move_kv = move_kv
        self._scheduler = Scheduler(
            self.kv_cache,
            max_batch_tokens=config.max_batch_tokens,
            max_draft_tokens=config.max_draft_tokens,
            is_free=self._is_free,
            # Costs that were not measured at the start say nothing of steps that were not made yet.
            step_ns=lambda num_rows: self.step_costs.step_ns(num_rows) if self._publishes_costs else 0.0,
            max_logit_rows=config.max_logit_rows,
            clock_ns=clock_ns,
        )
        self.step_costs = step_costs
        """Costs of steps, which every step keeps current."""
        self._forced: ForcedDrafts | None = None
        if forced_tokens is not None:
            self._forced = ForcedDrafts(
                forced_tokens,
                self.kv_cache,
                max_draft_tokens=config.max_draft_tokens,
                max_context_tokens=model.max_context_tokens,
                max_logit_rows=config.max_logit_rows,
                step_s=lambda num_rows: self.step_costs.step_ns(num_rows) / 1e9,
            )
        self._publishes_costs = False
        self._prefill_ns = 0.0  # of all steps

    def load(self) -> LoadReport:
        return msgspec.structs.replace(
            super().load(),
            prefill_time_ns=round(self._prefill_ns),
            step_table=self.step_costs.table if self._publishes_costs else StepTable(),
        )

    def _is_free(self, num_rows: int, num_more: int) -> bool:
        """See Scheduler. On a GPU rows are free until the arithmetic takes as long as reading the weights."""
        return self.step_costs.step_ns(num_rows + num_more) <= _FREE * self.step_costs.step_ns(num_rows)

    def _schedule(self, max_rows: int | None, events: list[Event]) -> list[ScheduledRows]:
        if self._forced is not None:
            self._forced.before_step(self._sequences.values())
        scheduled = self._scheduler.schedule(list(self._sequences.values()), max_rows)
        self.num_preemptions = self._scheduler.num_preemptions
        for sequence in self._scheduler.oversized:
            message = (
                f"the KV cache holds {self.kv_cache.pool.num_usable * BLOCK_SIZE} tokens, too few for this "
                f"sequence of {len(sequence.tokens)}: raise engine.kv_cache_tokens or shorten the prompt"
            )
            events.append(self._fail(sequence, SequenceErrorCode.RESOURCE_EXHAUSTED, message))
        for rows in scheduled:
            events.extend(rows.sequence.announce())
        # Verdicts first, so that each kind's logits are one slice.
        return sorted(scheduled, key=lambda rows: rows.status.is_drafting)

    def _run(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> Iterator[Event]:
        complete = [rows for rows in scheduled if rows.is_complete]
        verified = [rows for rows in complete if not rows.status.is_drafting]
        drafting = complete[len(verified) :]
        outcomes, drafted = self._compute(scheduled, verified, drafting)
        elapsed_ns = self._elapsed_ns(start_ns)
        num_prefill_rows = sum(rows.num_rows for rows in scheduled if not rows.is_decode)
        # What the target drafts for itself afterwards is no part of it.
        num_rows = sum(rows.num_rows for rows in scheduled)
        prefill_ns = self.step_costs.add(num_rows, num_prefill_rows, elapsed_ns)
        self._prefill_ns += prefill_ns
        for rows in scheduled:
            rows.sequence.serve(start_ns, elapsed_ns, rows.end_place)
        decided = list(zip(verified, outcomes, strict=True))
        elapsed_ns -= round(prefill_ns)
        if self._forced is not None:
            self._forced.after_step(_num_decoded(decided), elapsed_ns / 1e9)
        verdicts = self._keep(scheduled, decided, self._commit(decided), elapsed_ns)
        for rows in scheduled:  # now that keys, values and features are in place
            self.kv_cache.register_full_blocks(rows.sequence, rows.sequence.num_committed_tokens)
        proposals = [add_drafted(rows.sequence, result) for rows, result in zip(drafting, drafted, strict=True)]
        return map(self._closed, [*verdicts, *(event for event in proposals if event is not None)])

    @abstractmethod
    def _compute(
        self, scheduled: Sequence[ScheduledRows], verified: Sequence[ScheduledRows], drafting: Sequence[ScheduledRows]
    ) -> tuple[Sequence[Outcome], Sequence[Drafted]]:
        """Compute all the rows; what is decided by those that are verified, and what those that draft are to add."""

    def _elapsed_ns(self, start_ns: int) -> int:
        """What the step has taken."""
        return self._clock_ns() - start_ns

    def _commit(self, decided: Decided) -> list[Verdict]:
        """Commit tokens, and bring the keys and values of accepted nodes into place."""
        verdicts: list[Verdict] = []
        moves: list[tuple[int, int]] = []
        for rows, outcome in decided:
            verdict = rows.sequence.commit(rows.drafts, outcome, self.model.max_context_tokens)
            path = outcome.path[: verdict.num_accepted_tokens]
            if self._forced is not None:
                self._forced.learn(rows.sequence, verdict.base_length, verdict.token_ids)
            moves.extend(self.kv_cache.path_moves(rows.sequence, verdict.base_length, path))
            verdicts.append(verdict)
        if moves and self._move_kv is not None:
            self._move_kv(moves)
        return verdicts

    def _keep(
        self, scheduled: Sequence[ScheduledRows], decided: Decided, verdicts: list[Verdict], elapsed_ns: int
    ) -> list[Verdict]:
        """Keep what else the committed step has computed; the verdicts, with what there is to add. If it raises,
        nobody finds blocks that are not complete. elapsed_ns: of the step, without what prefills made it longer."""
        del scheduled, decided, elapsed_ns
        return verdicts

    def _draft_in_target(
        self,
        drafting: InTargetDrafting,
        kept: Sequence[KeptRows],
        decided: Decided,
        verdicts: list[Verdict],
        elapsed_ns: int,
    ) -> list[Verdict]:
        """Draft for the next step, after first tokens have left; the verdicts that are left."""
        verdicts = self._send_first(verdicts)
        num_sequences = sum(each.run is not None for each in self._sequences.values())
        drafting.after_step(kept, _num_decoded(decided), elapsed_ns, num_sequences)
        return verdicts

    def _closed(self, event: Event) -> Event:
        """Forget a sequence that has ended, or whose grammar gave up and left the token free."""
        if not isinstance(event, Verdict):
            return event
        sequence = self._sequences[event.sequence_id]
        if problem := _grammar_problem(sequence, event):
            return self._fail(sequence, SequenceErrorCode.INVALID, *problem)
        if event.finish_reason is not None:
            self._intake.forget(sequence)
        return event

    def _send_first(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Have first tokens leave before anything is drafted for the next; the verdicts that are left."""
        if self.send_first is None:
            return verdicts
        first = {verdict.sequence_id: verdict for verdict in verdicts if self._is_first(verdict)}
        if first:
            self.send_first([*self._events, *first.values()])
            self._events.clear()
        return [verdict for verdict in verdicts if verdict.sequence_id not in first]

    def _is_first(self, verdict: Verdict) -> bool:
        """Whether it begins an answer that goes on."""
        sequence = self._sequences[verdict.sequence_id]
        has_ended = verdict.finish_reason is not None or _grammar_problem(sequence, verdict)
        return sequence.num_output_tokens == len(verdict.token_ids) and not has_ended


def _num_decoded(decided: Decided) -> int:
    """Tokens that a step has decided beside prefills."""
    return sum(len(outcome.token_ids) for rows, outcome in decided if rows.is_decode)


def _grammar_problem(sequence: EngineSequence, verdict: Verdict) -> tuple[str, str] | None:
    """Why its grammar ends the sequence with this verdict, and the parameter to blame; None: it does not."""
    if sequence.grammar is None:
        return None
    if sequence.grammar.fault is not None:
        return f"the grammar cannot be followed any further: {sequence.grammar.fault}", "grammar"
    if not sequence.token_lists.allows(verdict.token_ids):
        return "the grammar goes on with none of allowed_token_ids: allow more of them", "allowed_token_ids"
    return None
