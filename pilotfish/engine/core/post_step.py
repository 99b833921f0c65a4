"""What a computed step changes: tokens are committed, drafts and features kept, blocks made findable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pilotfish.engine.core.drafts import NO_DRAFTS
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.in_target_drafting import InTargetDrafting
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.proposing import Drafted, add_drafted
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import DecodeTask, EngineSequence, VerifyTask
from pilotfish.engine.core.step_rows import kept_rows
from pilotfish.messages import Event, Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.speculation.rounds import Outcome, Round
from pilotfish.speculation.stopping import cut
from pilotfish.types import Timings


def verification_round(sequence: EngineSequence) -> Round:
    """What the target decides for this sequence; a decode is a verification of nothing."""
    return Round(
        sampling=sequence.sampling,
        first_position=len(sequence.tokens),
        draft_token_ids=sequence.drafts.token_ids,
        draft_probs=sequence.drafts.probs,
        history=sequence.history,
        tree=sequence.drafts.tree,
        constraint=sequence.grammar,
    )


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

    def finish(
        self,
        scheduled: Sequence[ScheduledRows],
        verified: Sequence[tuple[ScheduledRows, Outcome]],
        drafted: Sequence[tuple[ScheduledRows, Drafted]],
        start_ns: int,
    ) -> list[Event]:
        """Returns the results. If it raises, nobody finds blocks that are not complete.

        verified, drafted: those of the scheduled rows that reach the end of their task, and what they decide.
        """
        elapsed_ns = self._clock_ns() - start_ns
        for rows in scheduled:
            rows.sequence.mark_computed(rows.first_position + rows.num_rows)
            rows.sequence.compute_time_ns += elapsed_ns
        verdicts: list[Verdict] = []
        moves: list[tuple[int, int]] = []
        for rows, outcome in verified:
            verdicts.append(_commit(rows.sequence, outcome, self._max_context_tokens))
            path = outcome.path[: verdicts[-1].num_accepted_tokens]
            moves.extend(self._kv_cache.path_moves(rows.sequence, verdicts[-1].base_length, path))
        if moves:
            self._decoder.move_kv(moves)
        proposals = [add_drafted(rows.sequence, result) for rows, result in drafted]
        kept = []
        if self._features is not None or self._in_target is not None:
            kept = kept_rows(scheduled, {rows.sequence.sequence_id: outcome for rows, outcome in verified})
        if self._features is not None:
            self._features.keep(kept)
            verdicts = [
                _with_features(verdict, rows.sequence, self._features)
                for verdict, (rows, _) in zip(verdicts, verified, strict=True)
            ]
        for rows in scheduled:  # now that keys, values and features are in place
            self._kv_cache.register_full_blocks(rows.sequence, rows.sequence.num_committed_tokens)
        if self._in_target is not None:
            num_rows = sum(rows.num_rows for rows in scheduled)
            num_tokens = sum(len(outcome.token_ids) for _, outcome in verified)
            self._in_target.after_step(kept, num_rows, num_tokens, elapsed_ns)
        return [*verdicts, *(event for event in proposals if event is not None)]


def _commit(sequence: EngineSequence, outcome: Outcome, max_context_tokens: int) -> Verdict:
    """Append the decided tokens, cut at a stop; rolls rejected drafts back by lowering a number.

    The caller moves the keys and values of a tree's accepted path before anybody may find the blocks.
    """
    task = sequence.task
    assert isinstance(task, VerifyTask | DecodeTask)
    base_length = len(sequence.tokens)
    remaining = min(sequence.sampling.max_tokens - sequence.num_output_tokens, max_context_tokens - base_length)
    token_ids, num_accepted, finish_reason = cut(
        outcome.token_ids,
        outcome.num_accepted,
        stop_token_ids=sequence.sampling.stop_token_ids,
        remaining_tokens=remaining,
    )
    sequence.append(token_ids, committed=True)
    sequence.num_computed_tokens = base_length + num_accepted
    timings = Timings(task.start_ns - task.arrival_ns, sequence.compute_time_ns)
    drafts = task.drafts
    if isinstance(task, VerifyTask) or len(sequence.tokens) >= task.goal_length:
        sequence.task = None
    else:
        task.drafts = NO_DRAFTS
    sequence.compute_time_ns = 0
    return Verdict(
        sequence_id=sequence.sequence_id,
        base_length=base_length,
        num_draft_tokens=len(drafts),
        num_accepted_tokens=num_accepted,
        token_ids=tuple(token_ids),
        logprobs=outcome.logprobs[: len(token_ids)],
        finish_reason=finish_reason,
        timings=timings,
        draft_depth=drafts.tree.depth if drafts.tree else 0,
        ended_in_leaf=drafts.tree is not None and not drafts.tree.children[outcome.path[-1] + 1 if outcome.path else 0],
    )


def _with_features(verdict: Verdict, sequence: EngineSequence, features: FeatureStore) -> Verdict:
    """The last verdict of a task, as long as there is more to come, brings what its command asked for."""
    if verdict.finish_reason is not None or sequence.task is not None or sequence.feature_request is None:
        return verdict
    return msgspec.structs.replace(verdict, features=features.take(sequence))
