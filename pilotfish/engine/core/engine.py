"""What the engines of a model and of a draft head have in common: commands in, one step at a time, events out.

Synchronous, no I/O, no clock but the injected one. What breaks a command or a step costs the sequences it was for,
and not the replica.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from pilotfish.config import EngineConfig
from pilotfish.engine.core.cache.block_pool import BlockPool
from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.intake import Intake, MoveKV
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.learning.head_versions import HeadVersions
from pilotfish.engine.learning.recorder import Recorder
from pilotfish.messages import (
    CloseSequence,
    Decode,
    EngineCommand,
    Event,
    LearnVocabulary,
    OpenSequence,
    Predrafted,
    Propose,
    SequenceError,
    UseVocabulary,
    Verdict,
    Verify,
)
from pilotfish.types import BLOCK_SIZE, Limits, LoadReport, ModelInfo, SequenceErrorCode

logger = logging.getLogger(__name__)

WAITING_POLL_S = 0.001
"""An engine that waits without a command to come is looked at this often."""
STUCK_POLL_NS = 10**8
"""Time until the next step that no command precedes, where nobody can be served for want of blocks."""
MAX_FAILED_STEPS = 10
"""Failed steps in a row that are the replica's fault, not a request's: the engine ends."""


class Engine(ABC):
    """See the module. Not thread-safe: one caller submits and steps."""

    def __init__(
        self,
        config: EngineConfig,
        model: ModelInfo,
        *,
        grammars: Grammars | None,
        clock_ns: Callable[[], int],
        prefix_caching: bool,
        move_kv: MoveKV | None = None,
    ) -> None:
        """move_kv: as Intake's."""
        self.model = model
        self.limits = Limits(
            max_draft_tokens=config.max_draft_tokens, max_sequences=config.max_sequences, takes_prepared_drafts=True
        )
        self.num_preemptions = 0
        self._clock_ns = clock_ns
        self._grammars = grammars
        num_blocks = -(-config.kv_cache_tokens // BLOCK_SIZE) + 1
        self.kv_cache = KVCache(BlockPool(num_blocks, BLOCK_SIZE, prefix_caching=prefix_caching))
        self._sequences: dict[int, EngineSequence] = {}
        self._intake = Intake(
            self._sequences,
            self.kv_cache,
            max_context_tokens=model.max_context_tokens,
            move_kv=move_kv,
        )
        self._step_time_ns = 0
        self._num_sequences_decoding = self._num_step_tokens = 0  # of the last step
        self._num_steps = self._num_rows = 0
        self._num_failed_steps = 0  # in a row
        self._pending_events: list[Event] = []
        self._events: list[Event] = []
        """What the step under way has to say so far."""
        self.send_first: Callable[[list[Event]], None] | None = None
        """Takes what a step has to say while it still drafts: first tokens, and what came before them. None: they leave
        with the rest."""
        self._stuck_until_ns = 0
        self._recorder: Recorder | None = None
        self._heads: HeadVersions | None = None

    def learn(self, recorder: Recorder, heads: HeadVersions) -> None:
        """Keep texts that may be learned from, and draft with the version of the head that serves."""
        self._recorder = recorder
        self._heads = heads

    def close(self) -> None:
        """Write the texts that came to their end, and stop the threads that `learn` brought along."""
        if self._recorder is not None and self._heads is not None:
            self._recorder.end()
            self._heads.close()

    @property
    def drafter_version(self) -> int:
        """Version of the head that drafts now; 0: the configured one, or no head."""
        return 0 if self._heads is None else self._heads.version

    @property
    def has_work(self) -> bool:
        """Whether a step would do something, as far as is known: sequences that wait for blocks wait for a command
        that frees some, or for holders to be idle for long."""
        if self._pending_events or (self._grammars is not None and self._grammars.has_ready):
            return True
        is_stuck = self._stuck_until_ns > 0 and self._clock_ns() < self._stuck_until_ns
        return not is_stuck and any(map(self._is_ready, self._sequences.values()))

    @property
    def is_waiting(self) -> bool:
        """Whether it may soon have work without a command: it waits for a thread of its own, or for blocks."""
        return self._stuck_until_ns > 0 or (self._grammars is not None and self._grammars.is_waiting)

    def load(self) -> LoadReport:
        waiting = sum(1 for sequence in self._sequences.values() if not sequence.block_ids)
        pool = self.kv_cache.pool
        return LoadReport(
            num_sequences_running=len(self._sequences) - waiting,
            num_sequences_waiting=waiting,
            num_kv_blocks_used=pool.num_used,
            num_kv_blocks_total=pool.num_usable,
            step_time_ns=self._step_time_ns,
            num_preemptions=self.num_preemptions,
            num_sequences_decoding=self._num_sequences_decoding,
            num_step_tokens=self._num_step_tokens,
            num_steps=self._num_steps,
            num_rows=self._num_rows,
            num_grammar_deaths=0 if self._grammars is None else self._grammars.num_deaths,
            drafter_version=self.drafter_version,
        )

    def submit(self, command: EngineCommand) -> None:
        """Take a command; what it is answered at once comes out of the next step. One that fails costs its sequence."""
        self._stuck_until_ns = 0
        try:
            answer = self._take(command, self._clock_ns())
        except Exception as error:
            logger.exception("a %s failed", type(command).__name__)
            self._forget(command.sequence_id)
            message = f"the engine failed at a command of this sequence: {type(error).__name__}"
            answer = SequenceError(command.sequence_id, SequenceErrorCode.INTERNAL, message)
        if answer is not None:
            self._pending_events.append(answer)

    def step(self, max_rows: int | None = None) -> list[Event]:
        """Schedule, run, postprocess. Returns the events of this step and of commands since the last.

        max_rows: see Scheduler.schedule.
        """
        events = self._events = self._pending_events
        self._pending_events = []
        start_ns = self._clock_ns()
        if self._heads is not None:
            self._heads.take()
        events.extend(self._take_grammars())
        scheduled = self._schedule(max_rows, events)
        self._note_progress(bool(scheduled or events), start_ns)
        if not scheduled:
            return events
        try:
            events.extend(self._run(scheduled, start_ns))
            self._num_failed_steps = 0
        except Exception as error:
            self._num_failed_steps += 1
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                raise
            logger.exception("a step of %d sequences failed", len(scheduled))
            # None of its results is sent: nobody knows how far each sequence has come.
            message = f"the engine failed in a step of this sequence: {type(error).__name__}"
            for rows in scheduled:
                self._forget(rows.sequence.sequence_id)
                events.append(SequenceError(rows.sequence.sequence_id, SequenceErrorCode.INTERNAL, message))
        self._step_time_ns = self._clock_ns() - start_ns
        self._count_step(sum(rows.is_decode for rows in scheduled), sum(rows.num_rows for rows in scheduled))
        return events

    def go_on(self, events: Sequence[Event]) -> list[Event]:
        """The events of the last step, once what arrived during it was submitted: a sequence for whose verdict a draft
        was prepared goes on with that, and its verdict says so."""
        now_ns = self._clock_ns()
        return [self._intake.go_on(event, now_ns) if isinstance(event, Verdict) else event for event in events]

    def _count_step(self, num_decoding: int, num_rows: int) -> None:
        self._num_sequences_decoding = num_decoding
        self._num_step_tokens = num_rows
        self._num_steps += 1
        self._num_rows += num_rows

    def _note_progress(self, has_progressed: bool, now_ns: int) -> None:
        """Whether a step found anything to do."""
        has_waiting = not has_progressed and any(map(self._is_ready, self._sequences.values()))
        self._stuck_until_ns = now_ns + STUCK_POLL_NS if has_waiting else 0

    def _is_ready(self, sequence: EngineSequence) -> bool:
        """Whether a step could do something for the sequence."""
        return sequence.num_pending_rows > 0

    @abstractmethod
    def _schedule(self, max_rows: int | None, events: list[Event]) -> Sequence[ScheduledRows]:
        """The rows of the next step; appends what it has to say of sequences that get none."""

    @abstractmethod
    def _run(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> Iterable[Event]:
        """Compute the rows and what follows from them."""

    def _take(self, command: EngineCommand, now_ns: int) -> Event | None:
        match command:
            case OpenSequence():
                return self._open(command)
            case Verify():
                return self._intake.verify(command, now_ns)
            case Decode():
                return self._intake.decode(command, now_ns)
            case Propose():
                return self._intake.propose(command, now_ns)
            case Predrafted():
                self._intake.prepare(command)
                return None
            case LearnVocabulary():
                return None  # EngineCore does: it is a draft model's
            case UseVocabulary():
                if (sequence := self._sequences.get(command.sequence_id)) is not None:
                    sequence.vocabulary = command if command.vocabulary else None
                return None
            case CloseSequence():
                self._forget(command.sequence_id)
                if self._recorder is not None:
                    self._recorder.close(command)
                return None

    def _open(self, command: OpenSequence) -> Event | None:
        grammar = command.sampling.grammar
        if grammar is not None and self._grammars is None:
            message = "this replica knows no grammars: leave out response_format, tools or grammar"
            return SequenceError(command.sequence_id, SequenceErrorCode.INVALID, message, param="grammar")
        answer = self._intake.open(command)
        if answer is None and self._recorder is not None and command.learn_as:
            self._sequences[command.sequence_id].recording = self._recorder.open(command)
        if answer is None and grammar is not None and self._grammars is not None:
            self._grammars.begin(self._sequences[command.sequence_id], grammar, command.client)
        return answer

    def _take_grammars(self) -> list[Event]:
        """Sequences whose grammar is there go on from here; the errors of those whose grammar failed."""
        if self._grammars is None or not self._grammars.is_waiting:
            return []
        return [
            self._fail(sequence, code, message, "grammar")
            for sequence, code, message in self._grammars.take_ready()
            if self._sequences.get(sequence.sequence_id) is sequence
        ]

    def _fail(self, sequence: EngineSequence, code: SequenceErrorCode, message: str, param: str = "") -> SequenceError:
        self._forget(sequence.sequence_id)
        return SequenceError(sequence.sequence_id, code, message, param=param)

    def _forget(self, sequence_id: int) -> None:
        """Release what a sequence holds; it may have ended already."""
        sequence = self._sequences.get(sequence_id)
        if sequence is None:
            return
        if self._grammars is not None:
            self._grammars.forget(sequence)
        self._intake.forget(sequence)
