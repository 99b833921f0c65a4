"""The engine of a draft head that lives apart from its target: features come with each Propose.

The same interface as EngineCore's: commands in, one step at a time, events out. A step drafts for every
sequence that asks: one forward over the rows that features have come for, then one for each further token
of the drafts. Rows whose state was the head's own guess are written again when the target's features of
them come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import assert_never

import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.core.block_pool import BlockPool
from pilotfish.engine.core.draft_wish import DraftWish, num_tree_places
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.intake import Intake
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.sequence import NO_DRAFTS, Drafts, EngineSequence, ProposeTask
from pilotfish.engine.core.step_failures import StepFailures
from pilotfish.engine.drafting.head_growth import HeadGrowth
from pilotfish.engine.drafting.head_sequence import (
    add_features,
    begin_features,
    can_draft,
    finish_rows,
    next_rows,
    origin_of,
)
from pilotfish.features import Features
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
    Verify,
)
from pilotfish.models.eagle3.runtime import FeatureHead
from pilotfish.models.feature_codec import decode_features
from pilotfish.types import (
    BLOCK_SIZE,
    Limits,
    LoadReport,
    ModelInfo,
    SequenceErrorCode,
    Timings,
)

logger = logging.getLogger(__name__)


class HeadCore:
    """See the module. Not thread-safe: one caller submits and steps."""

    def __init__(
        self,
        head: FeatureHead,
        config: EngineConfig,
        model: ModelInfo,
        *,
        top_m: int = 32,
        grammars: Grammars | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """model: says which layers' features the head takes."""
        self.model = model
        self.limits = Limits(max_draft_tokens=config.max_draft_tokens, max_sequences=config.max_sequences)
        self._clock_ns = clock_ns
        self._grammars = grammars
        self._max_rows = config.max_batch_tokens
        self._head = head
        num_blocks = -(-config.kv_cache_tokens // BLOCK_SIZE) + 1
        head.allocate(num_blocks)
        self._growth = HeadGrowth(head, model.vocab_size, top_m=top_m)
        self._kv_cache = KVCache(BlockPool(num_blocks, BLOCK_SIZE, prefix_caching=False))
        self._sequences: dict[int, EngineSequence] = {}
        self._due: dict[int, EngineSequence] = {}
        """Those that wait for a proposal, the longest waiting first."""
        self._intake = Intake(
            self._sequences,
            self._kv_cache,
            vocab_size=model.vocab_size,
            max_context_tokens=model.max_context_tokens,
            limits=self.limits,
        )
        self._step = 0
        self._step_time_ns = 0
        self._num_sequences_decoding = self._num_step_tokens = 0  # of the last step
        self._failures = StepFailures(self._forget)
        self._pending_events: list[Event] = []

    @property
    def feature_width(self) -> int:
        """Values of a token's features."""
        return self._head.feature_width

    @property
    def has_work(self) -> bool:
        return bool(self._pending_events or self._due)

    @property
    def is_waiting(self) -> bool:
        return False

    def load(self) -> LoadReport:
        holders = sum(1 for sequence in self._sequences.values() if sequence.block_ids)
        pool = self._kv_cache.pool
        return LoadReport(
            num_sequences_running=holders,
            num_sequences_waiting=len(self._sequences) - holders,
            num_kv_blocks_used=pool.num_used,
            num_kv_blocks_total=pool.num_usable,
            step_time_ns=self._step_time_ns,
            num_sequences_decoding=self._num_sequences_decoding,
            num_step_tokens=self._num_step_tokens,
            num_grammar_deaths=0 if self._grammars is None else self._grammars.num_deaths,
        )

    def submit(self, command: Command) -> None:
        """Take a command; what it is answered at once comes out of the next step."""
        answer: Event | None
        match command:
            case OpenSequence():
                answer = self._open(command)
            case Propose():
                answer = self._propose(command)
            case CloseSequence():
                self._due.pop(command.sequence_id, None)
                self._intake.close(command)
                answer = None
            case Verify() | Decode():
                message = "this is a drafter: it verifies and decodes nothing"
                answer = SequenceError(command.sequence_id, SequenceErrorCode.INVALID, message, command.base_length)
            case _:
                assert_never(command)
        if answer is not None:
            self._pending_events.append(answer)

    def _open(self, command: OpenSequence) -> Event:
        error = self._intake.open(command)
        grammar = command.sampling.grammar
        if error is None and grammar is not None and self._grammars is not None:
            self._grammars.begin(self._sequences[command.sequence_id], grammar)
        return error or Opened(command.sequence_id, 0)

    def step(self, max_rows: int | None = None) -> list[Event]:
        """Draft for as many sequences as fit. Returns the events of this step and of commands since the last.

        max_rows: of the step, but for a single sequence that has more; None: what fits.
        """
        events, self._pending_events = self._pending_events, []
        start_ns = self._clock_ns()
        self._step += 1
        if self._grammars is not None and self._grammars.is_waiting:
            # Until its grammar is there, or if it fails, a sequence is drafted for as if it had none.
            self._grammars.take_ready()
        batch = self._next_batch(events, self._max_rows if max_rows is None else min(self._max_rows, max_rows))
        if not batch:
            return events
        num_rows = sum(len(sequence.tokens) - sequence.num_computed_tokens for sequence in batch)
        try:
            drafts = self._draft(batch)
            self._step_time_ns = self._clock_ns() - start_ns
            for sequence in batch:
                finish_rows(sequence)
        except Exception as error:
            events.extend(self._failures.take(batch, error))
            return events
        self._failures.end()
        self._num_sequences_decoding, self._num_step_tokens = len(batch), num_rows
        for sequence, drafted in zip(batch, drafts, strict=True):
            events.append(_proposal(sequence, drafted, start_ns, self._step_time_ns))
        return events

    def _propose(self, command: Propose) -> Event | None:
        sequence = self._sequences.get(command.sequence_id)
        if sequence is not None and _rewrites(sequence, command):
            # The features of what was replaced are gone: whoever asks has them and opens the sequence again.
            self._forget(sequence)
        answer = self._intake.propose(command, self._clock_ns())
        if answer is not None:
            return answer
        sequence = self._sequences[command.sequence_id]
        if command.features is not None:
            self._take_features(sequence, command.features)
        self._due.pop(command.sequence_id, None)
        self._due[command.sequence_id] = sequence
        return None

    def _take_features(self, sequence: EngineSequence, features: Features) -> None:
        """Features that make no sense are dropped: without them the sequence gets no drafts."""
        try:
            values = decode_features(features, width=self.feature_width, num_layers=len(self.model.feature_layers))
        except ValueError as error:
            logger.warning("the features of a sequence are dropped: %s", error)
            return
        values = values.to(self._head.device, self._head.dtype)
        if not add_features(sequence, features.first_position, values):
            self._kv_cache.release(sequence)
            begin_features(sequence, features.first_position, values)

    def _next_batch(self, events: list[Event], max_rows: int) -> list[EngineSequence]:
        """Those with rows to compute, and blocks for them; who cannot draft is answered in events."""
        batch: list[EngineSequence] = []
        num_rows = 0
        for sequence_id, sequence in list(self._due.items()):
            needed = len(sequence.tokens) - sequence.num_computed_tokens
            if batch and num_rows + needed > max_rows:
                break
            del self._due[sequence_id]
            if not can_draft(sequence) or not self._reserve(sequence):
                events.append(_proposal(sequence, NO_DRAFTS, self._clock_ns(), 0))
                continue
            sequence.last_step = self._step
            batch.append(sequence)
            num_rows += needed
        return batch

    def _reserve(self, sequence: EngineSequence) -> bool:
        """Blocks for its rows and drafts; the longest unserved sequences that nobody waits for are forgotten for it."""
        task = sequence.task
        assert isinstance(task, ProposeTask)
        num_drafts = task.num_draft_tokens
        if task.tree is not None:
            num_drafts = num_tree_places(task.tree, task.num_draft_tokens)
        num_places = len(sequence.tokens) - origin_of(sequence) + num_drafts
        while not self._kv_cache.reserve(sequence, num_places):
            idle = [other for other in self._sequences.values() if other.block_ids and other.task is None]
            victim = min(idle, key=lambda other: other.last_step, default=None)
            if victim is None:
                return False
            self._forget(victim)
        return True

    def _forget(self, sequence: EngineSequence) -> None:
        self._due.pop(sequence.sequence_id, None)
        self._intake.forget(sequence)

    @torch.inference_mode()
    def _draft(self, batch: Sequence[EngineSequence]) -> list[Drafts]:
        """Run the rows and draft; changes no sequence."""
        rows = [next_rows(sequence) for sequence in batch]
        last_rows = [end - 1 for end in accumulate(len(part.token_ids) for part in rows)]
        output = self._growth.forward(rows, last_rows)
        wishes = [
            DraftWish(sequence, sequence.task.num_draft_tokens, origin_of(sequence), sequence.task.tree)
            for sequence in batch
            if isinstance(sequence.task, ProposeTask)
        ]
        return self._growth.grow(wishes, output, last_rows)


def _rewrites(sequence: EngineSequence, command: Propose) -> bool:
    """Whether the command replaces or takes back committed tokens."""
    start = command.base_length - len(command.new_token_ids)
    known = tuple(sequence.tokens[max(0, start) :])
    return start >= 0 and known != command.new_token_ids[: len(known)]


def _proposal(sequence: EngineSequence, drafted: Drafts, start_ns: int, compute_time_ns: int) -> Proposal:
    """The answer; ends the task."""
    task, sequence.task = sequence.task, None
    assert isinstance(task, ProposeTask)
    return Proposal(
        sequence_id=sequence.sequence_id,
        base_length=task.base_length,
        draft_token_ids=drafted.token_ids,
        draft_probs=drafted.probs,
        timings=Timings(max(0, start_ns - task.arrival_ns), compute_time_ns),
        parents=drafted.tree.parents if drafted.tree is not None else (),
    )
