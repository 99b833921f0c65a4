"""What a computed step changes: tokens are committed, drafts and features kept, blocks made findable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.in_target_drafting import InTargetDrafting
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.proposing import Drafted, add_drafted
from pilotfish.engine.core.results import commit_outcomes
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.step_rows import kept_rows
from pilotfish.messages import Event, Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.speculation.rounds import Outcome


@dataclass(frozen=True, slots=True)
class ComputedStep:
    """Rows that were computed, and what they decide for those that reach the end of their task."""

    scheduled: Sequence[ScheduledRows]
    verdicts: Sequence[ScheduledRows]
    outcomes: Sequence[Outcome]
    """One for each of the verdicts."""
    proposals: Sequence[ScheduledRows]
    drafted: Sequence[Drafted]
    """One for each of the proposals."""


class PostStep:
    """See the module."""

    def __init__(
        self,
        decoder: Decoder,
        kv_cache: KVCache,
        *,
        max_context_tokens: int,
        features: FeatureStore | None,
        in_target: InTargetDrafting | None,
        clock_ns: Callable[[], int],
    ) -> None:
        """features, in_target: of a target that keeps features or drafts for itself."""
        self._decoder = decoder
        self._kv_cache = kv_cache
        self._max_context_tokens = max_context_tokens
        self._features = features
        self._in_target = in_target
        self._clock_ns = clock_ns

    def finish(self, step: ComputedStep, start_ns: int) -> list[Event]:
        """Returns the results. If it raises, nobody finds blocks that are not complete."""
        for rows in step.scheduled:
            rows.sequence.mark_computed(rows.first_position + rows.num_rows)
        elapsed_ns = self._clock_ns() - start_ns
        for rows in step.scheduled:
            rows.sequence.compute_time_ns += elapsed_ns
        verdicts, moves = commit_outcomes(step.verdicts, step.outcomes, self._kv_cache, self._max_context_tokens)
        if moves:
            self._decoder.move_kv(moves)
        proposals: list[Event] = []
        for rows, drafted in zip(step.proposals, step.drafted, strict=True):
            proposals.extend(add_drafted(rows.sequence, drafted))
        by_id = {rows.sequence.sequence_id: outcome for rows, outcome in zip(step.verdicts, step.outcomes, strict=True)}
        follows = self._features is not None or self._in_target is not None
        kept = kept_rows(step.scheduled, by_id) if follows else []
        if self._features is not None:
            self._features.keep(kept)
            verdicts = [
                _with_features(verdict, rows.sequence, self._features)
                for verdict, rows in zip(verdicts, step.verdicts, strict=True)
            ]
        for rows in step.scheduled:  # now that keys, values and features are in place
            self._kv_cache.register_full_blocks(rows.sequence, rows.sequence.num_committed_tokens)
        if self._in_target is not None:
            num_rows = sum(rows.num_rows for rows in step.scheduled)
            num_tokens = sum(len(outcome.token_ids) for outcome in step.outcomes)
            self._in_target.after_step(kept, num_rows, num_tokens, elapsed_ns)
        return [*verdicts, *proposals]


def _with_features(verdict: Verdict, sequence: EngineSequence, features: FeatureStore) -> Verdict:
    """The last verdict of a task, as long as there is more to come, brings what its command asked for."""
    if verdict.finish_reason is not None or sequence.task is not None or sequence.feature_request is None:
        return verdict
    return msgspec.structs.replace(verdict, features=features.take(sequence))
