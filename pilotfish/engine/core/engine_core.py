"""The engine of a model, role-blind: verifying for a target and proposing for a drafter are two kinds of task over the
same sequences, scheduler and cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafter, InTargetDrafting
from pilotfish.engine.core.proposing import add_drafted, draft_next, draft_plan
from pilotfish.engine.core.scheduler import ScheduledRows, Scheduler
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.step_rows import build_step, kept_rows
from pilotfish.messages import Event, Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.speculation.rounds import Outcome, Round, verify
from pilotfish.step_table import StepTable
from pilotfish.types import BLOCK_SIZE, LoadReport, ModelInfo, SequenceErrorCode


class EngineCore(Engine):
    """See the module and Engine."""

    def __init__(
        self,
        decoder: Decoder,
        config: EngineConfig,
        model: ModelInfo,
        *,
        top_m: int = 32,
        drafter: InTargetDrafter | None = None,
        features: FeatureStore | None = None,
        grammars: Grammars | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(
            config,
            model,
            grammars=grammars,
            clock_ns=clock_ns,
            prefix_caching=config.prefix_caching,
            move_kv=decoder.move_kv,
        )
        self._decoder = decoder
        self._top_m = top_m
        num_blocks = self.kv_cache.pool.num_usable + 1
        num_bytes = decoder.allocate(num_blocks).num_bytes
        self._features = features
        self._in_target: InTargetDrafting | None = None
        if drafter is not None:
            num_bytes += drafter.allocate(num_blocks)
            self._in_target = InTargetDrafting(
                drafter,
                self.kv_cache,
                max_context_tokens=model.max_context_tokens,
                step_s=lambda num_rows: self.step_costs.step_ns(num_rows) / 1e9,
                clock_ns=clock_ns,
            )
        if features is not None:
            features.allocate(num_blocks)
        self.kv_bytes_per_block = num_bytes // num_blocks
        self._scheduler = Scheduler(
            self.kv_cache,
            max_batch_tokens=config.max_batch_tokens,
            max_draft_tokens=config.max_draft_tokens,
            clock_ns=clock_ns,
        )
        self.step_costs = StepCosts()
        """Kept current by every step."""
        self._publishes_costs = False
        self._prefill_ns = 0.0  # of all steps

    def begin_with(self, step_costs: StepCosts) -> None:
        """As if nothing had been computed yet, but for what steps cost; no sequence is open. From now on load reports
        tell what they cost."""
        self.step_costs, self._publishes_costs = step_costs, True
        self._prefill_ns = 0.0
        self.kv_cache.pool.clear_cache()

    def load(self) -> LoadReport:
        return msgspec.structs.replace(
            super().load(),
            prefill_time_ns=round(self._prefill_ns),
            step_table=self.step_costs.table if self._publishes_costs else StepTable(),
        )

    def _schedule(self, max_rows: int | None, events: list[Event]) -> list[ScheduledRows]:
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

    @torch.inference_mode()
    def _run(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> Iterator[Event]:
        num_rows = sum(rows.num_rows for rows in scheduled)
        num_prefill_rows = sum(rows.num_rows for rows in scheduled if not rows.is_decode)
        logits = self._decoder.forward(build_step(scheduled))
        complete = [rows for rows in scheduled if rows.is_complete]
        verified = [rows for rows in complete if not rows.status.is_drafting]
        drafting = complete[len(verified) :]
        num_verified_rows = sum(rows.num_logit_rows for rows in verified)
        outcomes = verify(logits[:num_verified_rows], [_round(rows.sequence) for rows in verified])
        drafted = draft_next(logits[num_verified_rows:], [draft_plan(rows.sequence) for rows in drafting], self._top_m)
        elapsed_ns = self._clock_ns() - start_ns
        # What the target drafts for itself afterwards is no part of it.
        self._prefill_ns += self.step_costs.add(num_rows, num_prefill_rows, elapsed_ns)
        decided = list(zip([rows.sequence for rows in verified], outcomes, strict=True))
        for rows in scheduled:
            rows.sequence.serve(start_ns, elapsed_ns, rows.end_place)
        verdicts = self._commit(scheduled, decided, elapsed_ns)
        proposals = [add_drafted(rows.sequence, result) for rows, result in zip(drafting, drafted, strict=True)]
        return map(self._closed, [*verdicts, *(event for event in proposals if event is not None)])

    def _commit(
        self, scheduled: Sequence[ScheduledRows], decided: Sequence[tuple[EngineSequence, Outcome]], elapsed_ns: int
    ) -> list[Verdict]:
        """What the computed step changes: tokens are committed, features kept, blocks made findable. If it raises,
        nobody finds blocks that are not complete."""
        verdicts: list[Verdict] = []
        moves: list[tuple[int, int]] = []
        for sequence, outcome in decided:
            verdicts.append(
                sequence.commit(outcome.token_ids, outcome.path, outcome.logprobs, self.model.max_context_tokens)
            )
            path = outcome.path[: verdicts[-1].num_accepted_tokens]
            moves.extend(self.kv_cache.path_moves(sequence, verdicts[-1].base_length, path))
        if moves:
            self._decoder.move_kv(moves)
        kept = []
        if self._features is not None or self._in_target is not None:
            kept = kept_rows(scheduled, {sequence.sequence_id: outcome for sequence, outcome in decided})
        if self._features is not None:
            self._features.keep(kept)
            for index, (verdict, (sequence, _)) in enumerate(zip(verdicts, decided, strict=True)):
                # The last verdict of a task, as long as there is more to come, brings what its command asked for.
                is_due = sequence.task is None and verdict.finish_reason is None
                if is_due and sequence.feature_request is not None:
                    verdicts[index] = msgspec.structs.replace(verdict, features=self._features.take(sequence))
        for rows in scheduled:  # now that keys, values and features are in place
            self.kv_cache.register_full_blocks(rows.sequence, rows.sequence.num_committed_tokens)
        if self._in_target is not None:
            has_prefill = any(not rows.is_decode for rows in scheduled)
            num_decoded = 0 if has_prefill else sum(len(outcome.token_ids) for _, outcome in decided)
            num_sequences = sum(each.run is not None for each in self._sequences.values())
            self._in_target.after_step(kept, num_decoded, elapsed_ns, num_sequences)
        return verdicts

    def _closed(self, event: Event) -> Event:
        """Forget a sequence that has ended, or whose grammar gave up and left the token free."""
        if not isinstance(event, Verdict):
            return event
        sequence = self._sequences[event.sequence_id]
        if sequence.grammar is not None and sequence.grammar.fault is not None:
            message = f"the grammar cannot be followed any further: {sequence.grammar.fault}"
            return self._fail(sequence, SequenceErrorCode.INVALID, message, "grammar")
        if sequence.grammar is not None and not sequence.token_lists.allows(event.token_ids):
            message = "the grammar goes on with none of allowed_token_ids: allow more of them"
            return self._fail(sequence, SequenceErrorCode.INVALID, message, "allowed_token_ids")
        if event.finish_reason is not None:
            self._intake.forget(sequence)
        return event


def _round(sequence: EngineSequence) -> Round:
    """What the target decides for this sequence; a decode is a verification of nothing."""
    return Round(
        sampling=sequence.sampling,
        first_position=len(sequence.tokens),
        draft_token_ids=sequence.drafts.token_ids,
        draft_probs=sequence.drafts.probs,
        history=sequence.history,
        tree=sequence.drafts.tree,
        constraint=sequence.grammar,
        token_lists=sequence.token_lists,
    )
