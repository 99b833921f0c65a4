"""The engine: commands in, one step at a time, events out. Synchronous, no I/O, no clock but the injected one.

Role-blind: verifying for a target and proposing for a drafter are two kinds of task over the same
sequences, scheduler and cache.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import assert_never

from pilotfish.config import EngineConfig
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.block_pool import BlockPool
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafter, InTargetDrafting
from pilotfish.engine.core.intake import Intake
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.post_step import ComputedStep, PostStep
from pilotfish.engine.core.proposing import DRAFTING_TASKS, draft_next
from pilotfish.engine.core.results import verification_round
from pilotfish.engine.core.scheduler import ScheduledRows, Scheduler
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.step_failures import StepFailures
from pilotfish.engine.core.step_rows import build_step
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.models.decoder import Decoder
from pilotfish.speculation.rounds import verify
from pilotfish.step_table import StepTable
from pilotfish.types import BLOCK_SIZE, Limits, LoadReport, ModelInfo, SequenceErrorCode

logger = logging.getLogger(__name__)


class EngineCore:
    """See the module. Not thread-safe: one caller submits and steps."""

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
        self.model = model
        self.limits = Limits(max_draft_tokens=config.max_draft_tokens, max_sequences=config.max_sequences)
        self._decoder = decoder
        self._clock_ns = clock_ns
        self._top_m = top_m
        num_blocks = -(-config.kv_cache_tokens // BLOCK_SIZE) + 1
        num_bytes = decoder.allocate(num_blocks).num_bytes
        self._kv_cache = KVCache(BlockPool(num_blocks, BLOCK_SIZE, prefix_caching=config.prefix_caching))
        in_target: InTargetDrafting | None = None
        if drafter is not None:
            num_bytes += drafter.allocate(num_blocks)
            in_target = InTargetDrafting(
                drafter, self._kv_cache, max_context_tokens=model.max_context_tokens, clock_ns=clock_ns
            )
        self._grammars = grammars
        if features is not None:
            features.allocate(num_blocks)
        self._post_step = PostStep(
            decoder,
            self._kv_cache,
            max_context_tokens=model.max_context_tokens,
            features=features,
            in_target=in_target,
            clock_ns=clock_ns,
        )
        self.kv_bytes_per_block = num_bytes // num_blocks
        self._scheduler = Scheduler(
            self._kv_cache, max_batch_tokens=config.max_batch_tokens, max_draft_tokens=config.max_draft_tokens
        )
        self._sequences: dict[int, EngineSequence] = {}
        self._intake = Intake(
            self._sequences,
            self._kv_cache,
            vocab_size=model.vocab_size,
            max_context_tokens=model.max_context_tokens,
            limits=self.limits,
            move_kv=decoder.move_kv,
        )
        self._step_time_ns = 0
        self._num_sequences_decoding = self._num_step_tokens = 0  # of the last step
        self.step_costs = StepCosts()
        """Kept current by every step."""
        self._publishes_costs = False
        self._prefill_ns = 0.0  # of all steps
        self._failures = StepFailures(self._forget)
        self._pending_events: list[Event] = []

    @property
    def has_work(self) -> bool:
        if self._pending_events or (self._grammars is not None and self._grammars.has_ready):
            return True
        return any(sequence.num_pending_rows > 0 for sequence in self._sequences.values())

    @property
    def is_waiting(self) -> bool:
        return self._grammars is not None and self._grammars.is_waiting

    @property
    def kv_cache(self) -> KVCache:
        return self._kv_cache

    @property
    def num_preemptions(self) -> int:
        return self._scheduler.num_preemptions

    def begin_with(self, step_costs: StepCosts) -> None:
        """As if nothing had been computed yet, but for what steps cost; no sequence is open. From now on load reports
        tell what they cost."""
        self.step_costs, self._publishes_costs = step_costs, True
        self._prefill_ns = 0.0
        self._kv_cache.pool.clear_cache()

    def load(self) -> LoadReport:
        waiting = sum(1 for sequence in self._sequences.values() if not sequence.block_ids)
        pool = self._kv_cache.pool
        return LoadReport(
            num_sequences_running=len(self._sequences) - waiting,
            num_sequences_waiting=waiting,
            num_kv_blocks_used=pool.num_used,
            num_kv_blocks_total=pool.num_usable,
            step_time_ns=self._step_time_ns,
            num_preemptions=self.num_preemptions,
            num_sequences_decoding=self._num_sequences_decoding,
            num_step_tokens=self._num_step_tokens,
            prefill_time_ns=round(self._prefill_ns),
            num_grammar_deaths=0 if self._grammars is None else self._grammars.num_deaths,
            step_table=self.step_costs.table if self._publishes_costs else StepTable(),
        )

    def submit(self, command: Command) -> None:
        """Take a command; what it is answered at once comes out of the next step. One that fails costs its sequence."""
        try:
            answer = self._take(command, self._clock_ns())
        except Exception as error:
            logger.exception("a %s failed", type(command).__name__)
            if command.sequence_id in self._sequences:
                self._intake.forget(self._sequences[command.sequence_id])
            message = f"the engine failed at a command of this sequence: {type(error).__name__}"
            answer = SequenceError(command.sequence_id, SequenceErrorCode.INTERNAL, message)
        if answer is not None:
            self._pending_events.append(answer)

    def _take(self, command: Command, now_ns: int) -> Event | None:
        match command:
            case OpenSequence():
                return self._open(command)
            case Verify():
                return self._intake.verify(command, now_ns)
            case Decode():
                return self._intake.decode(command, now_ns)
            case Propose():
                return self._intake.propose(command, now_ns)
            case CloseSequence():
                self._intake.close(command)
                return None
            case _:
                assert_never(command)

    def _open(self, command: OpenSequence) -> SequenceError | None:
        grammar = command.sampling.grammar
        if grammar is not None and self._grammars is None:
            message = "this replica knows no grammars: leave out response_format, tools or grammar"
            return SequenceError(command.sequence_id, SequenceErrorCode.INVALID, message, param="grammar")
        answer = self._intake.open(command)
        if answer is None and grammar is not None and self._grammars is not None:
            self._grammars.begin(self._sequences[command.sequence_id], grammar)
        return answer

    def step(self, max_rows: int | None = None) -> list[Event]:
        """Schedule, run, postprocess. Returns the events of this step and of commands since the last.

        max_rows: see Scheduler.schedule.
        """
        events, self._pending_events = self._pending_events, []
        start_ns = self._clock_ns()
        events.extend(self._take_grammars())
        scheduled = self._scheduler.schedule(list(self._sequences.values()), max_rows)
        events.extend(self._fail_oversized())
        if not scheduled:
            return events
        # Verdicts first, so that each kind's logits are one slice.
        scheduled.sort(key=lambda rows: isinstance(rows.sequence.task, DRAFTING_TASKS))
        # Computing the rows changes what they are.
        num_decoding = sum(rows.is_decode for rows in scheduled)
        num_rows = sum(rows.num_rows for rows in scheduled)
        num_prefill_rows = sum(rows.num_rows for rows in scheduled if not rows.is_decode)
        for rows in scheduled:
            events.extend(self._begin(rows, start_ns))
        try:
            computed = self._compute(scheduled)
            # What the target drafts for itself afterwards is no part of it.
            self._prefill_ns += self.step_costs.add(num_rows, num_prefill_rows, self._clock_ns() - start_ns)
            events.extend(map(self._closed, self._post_step.finish(computed, start_ns)))
            self._failures.end()
        except Exception as error:
            events.extend(self._failures.take([rows.sequence for rows in scheduled], error))
        self._step_time_ns = self._clock_ns() - start_ns
        self._num_sequences_decoding, self._num_step_tokens = num_decoding, num_rows
        return events

    def _take_grammars(self) -> list[Event]:
        """Sequences whose grammar is there go on from here; the errors of those whose grammar failed."""
        if self._grammars is None or not self._grammars.is_waiting:
            return []
        return [
            self._fail(sequence, code, message, "grammar")
            for sequence, code, message in self._grammars.take_ready()
            if self._sequences.get(sequence.sequence_id) is sequence
        ]

    def _forget(self, sequence: EngineSequence) -> None:
        """It may have ended already."""
        if sequence.sequence_id in self._sequences:
            self._intake.forget(sequence)

    def _fail(self, sequence: EngineSequence, code: SequenceErrorCode, message: str, param: str = "") -> SequenceError:
        self._intake.forget(sequence)
        return SequenceError(sequence.sequence_id, code, message, param=param)

    def _begin(self, rows: ScheduledRows, start_ns: int) -> list[Event]:
        sequence = rows.sequence
        if sequence.task is not None and sequence.task.start_ns == 0:
            sequence.task.start_ns = start_ns
            sequence.compute_time_ns = 0
        if sequence.is_opened:
            return []
        sequence.is_opened = True
        return [Opened(sequence.sequence_id, sequence.num_cached_tokens)]

    def _compute(self, scheduled: Sequence[ScheduledRows]) -> ComputedStep:
        """Run the rows and decide; changes no sequence."""
        logits = self._decoder.forward(build_step(scheduled))
        complete = [rows for rows in scheduled if rows.is_complete]
        verdicts = [rows for rows in complete if not isinstance(rows.sequence.task, DRAFTING_TASKS)]
        proposals = complete[len(verdicts) :]  # as `step` has sorted them
        num_verdict_rows = sum(rows.num_logit_rows for rows in verdicts)
        outcomes = verify(logits[:num_verdict_rows], [verification_round(rows.sequence) for rows in verdicts])
        drafted = draft_next(logits[num_verdict_rows:], [rows.sequence for rows in proposals], self._top_m)
        return ComputedStep(scheduled, verdicts, outcomes, proposals, drafted)

    def _closed(self, event: Event) -> Event:
        """Forget a sequence that has ended, or whose grammar gave up and left the token free."""
        if not isinstance(event, Verdict):
            return event
        sequence = self._sequences[event.sequence_id]
        if sequence.grammar is not None and sequence.grammar.fault is not None:
            message = f"the grammar cannot be followed any further: {sequence.grammar.fault}"
            return self._fail(sequence, SequenceErrorCode.INVALID, message, "grammar")
        if event.finish_reason is not None:
            self._intake.forget(sequence)
        return event

    def _fail_oversized(self) -> list[Event]:
        events: list[Event] = []
        for sequence in self._scheduler.oversized:
            message = (
                f"the KV cache holds {self._kv_cache.pool.num_usable * BLOCK_SIZE} tokens, too few for this "
                f"sequence of {len(sequence.tokens)}: raise engine.kv_cache_tokens or shorten the prompt"
            )
            events.append(self._fail(sequence, SequenceErrorCode.RESOURCE_EXHAUSTED, message))
        return events
