"""An engine core without a model: the real one's intake, scheduler and KV blocks, a HashLanguageModel's words, and
the time that a cost model says.

What a step takes in, and what waits, is decided by the code that decides it in pilotfish.engine; only the
arithmetic is left out. Torch-free.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import msgspec

from pilotfish.config import EngineConfig
from pilotfish.emulation.drafting import Acceptance, EmulatedDrafting
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost, StepCost
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.scheduler import ScheduledRows, Scheduler
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import ProposeTask, Status
from pilotfish.messages import (
    Command,
    Event,
    OpenSequence,
    Propose,
    SequenceError,
    Verdict,
)
from pilotfish.speculation.trees.tree import ROOT
from pilotfish.step_table import StepTable
from pilotfish.types import Limits, LoadReport, ModelInfo, SequenceErrorCode


def emulated_verdict(sequence: EngineSequence, language_model: HashLanguageModel, max_context_tokens: int) -> Verdict:
    """Commit the tokens of the sequence's verification, or of one step of its run."""
    tokens, drafts, sampling = sequence.tokens, sequence.drafts, sequence.sampling
    base_length, children, path = len(tokens), drafts.shape.children, list[int]()
    node: int | None = ROOT
    while node is not None:
        token_id = language_model.next_token(tokens, sampling)
        stops = sequence.token_lists.stop_token_ids
        if token_id in stops and sequence.num_output_tokens < sampling.min_tokens:
            others = sampling.allowed_token_ids or itertools.count(language_model.first_token_id)
            token_id = next((other for other in others if other not in stops), token_id)
        tokens.append(token_id)
        node = next((child for child in children[node + 1] if drafts.token_ids[child] == token_id), None)
        path += () if node is None else (node,)
    decided = tokens[base_length:]
    del tokens[base_length:]
    return sequence.commit(decided, path, (), max_context_tokens)


FREE = RooflineCost(weights_s=0.0, token_s=0.0)
"""Steps that take no time."""


class EmulatedCore(Engine):
    """In the place of pilotfish.engine.core.engine_core.EngineCore, for either role.

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
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """acceptance: probability that a proposed token is the one the target would say; by position, if several."""
        config = EngineConfig(
            max_draft_tokens=limits.max_draft_tokens,
            max_sequences=limits.max_sequences,
            kv_cache_tokens=kv_cache_tokens,
            max_batch_tokens=max_batch_tokens,
        )
        super().__init__(config, model, grammars=None, clock_ns=clock_ns, prefix_caching=prefix_caching)
        self.drafting = EmulatedDrafting(language_model, acceptance)
        self.step_s = 0.0
        """Seconds that the last step takes."""
        self._language_model = language_model
        self._step_cost = step_cost
        self._scheduler = Scheduler(
            self.kv_cache,
            max_batch_tokens=max_batch_tokens,
            max_draft_tokens=limits.max_draft_tokens,
            clock_ns=clock_ns,
        )
        self._proposals: dict[int, Propose] = {}
        """What each sequence was last asked to draft."""
        self.step_costs = StepCosts.sampled(step_cost.step_s, max_batch_tokens)
        self._prefill_ns = 0.0  # of all steps

    @property
    def has_work(self) -> bool:
        return self.drafting.has_work or super().has_work

    @property
    def num_sequences(self) -> int:
        """Sequences held."""
        return len(self._sequences)

    def load(self) -> LoadReport:
        return msgspec.structs.replace(
            super().load(),
            step_time_ns=round(1e9 * self.step_s),
            prefill_time_ns=round(self._prefill_ns),
            step_table=StepTable() if self.model.proposer else self.step_costs.table,
        )

    def step(self, max_rows: int | None = None) -> list[Event]:
        """Schedule and answer. Returns the events of this step and of commands since the last.

        max_rows: see Scheduler.schedule.
        """
        events, self._pending_events = self._pending_events, []
        start_ns = self._clock_ns()
        scheduled = self._schedule(max_rows, events)
        events += self._run(scheduled, start_ns)
        self._note_progress(bool(scheduled or events), start_ns)
        return events

    def _schedule(self, max_rows: int | None, events: list[Event]) -> list[ScheduledRows]:
        scheduled = self._scheduler.schedule(list(self._sequences.values()), max_rows)
        self.num_preemptions = self._scheduler.num_preemptions
        for sequence in self._scheduler.oversized:
            message = f"the emulated KV cache is too small for this sequence of {len(sequence.tokens)} tokens"
            events.append(self._fail(sequence, SequenceErrorCode.RESOURCE_EXHAUSTED, message))
        for rows in scheduled:
            events.extend(rows.sequence.announce())
        return scheduled

    def _take(self, command: Command, now_ns: int) -> Event | None:
        return self._propose(command, now_ns) if isinstance(command, Propose) else super()._take(command, now_ns)

    def _open(self, command: OpenSequence) -> Event | None:
        return self._intake.open(command)  # a grammar is nothing to it

    def _forget(self, sequence_id: int) -> None:
        super()._forget(sequence_id)
        self._proposals.pop(sequence_id, None)
        self.drafting.forget(sequence_id)

    def _propose(self, command: Propose, now_ns: int) -> SequenceError | None:
        """As the real engine: rewind to what is stated, and compute what is missing before drafting."""
        sequence = self._sequences.get(command.sequence_id)
        start = command.base_length - len(command.new_token_ids)
        if sequence is None or not sequence.num_prompt_tokens <= start <= len(sequence.tokens):
            code = SequenceErrorCode.UNKNOWN_SEQUENCE
            message = "unknown sequence, or tokens before the stated ones are missing"
            return SequenceError(command.sequence_id, code, message, command.base_length)
        if start < len(sequence.tokens):
            self.kv_cache.rewind(sequence, start)
        num_computed = sequence.num_computed_tokens
        sequence.append(command.new_token_ids, committed=True)
        self.kv_cache.recompute_from(sequence, len(sequence.tokens) - 1)
        last = self._proposals.get(command.sequence_id)
        if last is not None and len(command.new_token_ids) <= last.num_draft_tokens + 1 and num_computed >= start - 1:
            # Drafts that were accepted are computed, all but the last of them.
            num_missing = 1 + (len(command.new_token_ids) > last.num_draft_tokens)
            sequence.mark_computed(max(sequence.num_computed_tokens, len(sequence.tokens) - num_missing))
        self._proposals[command.sequence_id] = command
        task = ProposeTask(
            base_length=command.base_length, num_draft_tokens=command.num_draft_tokens, arrival_ns=now_ns
        )
        sequence.propose(task)
        return None

    def _run(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> list[Event]:
        for rows in scheduled:
            if rows.status is Status.PROPOSING and rows.is_complete:
                # It is drafted for in this very step.
                self.drafting.propose(
                    self._proposals[rows.sequence.sequence_id], rows.sequence.tokens, rows.sequence.sampling
                )
        self._measure(scheduled)
        events: list[Event] = [*self.drafting.step()]
        for rows in scheduled:
            rows.sequence.serve(start_ns, round(1e9 * self.step_s), rows.end_place)
            self.kv_cache.register_full_blocks(rows.sequence, rows.sequence.num_committed_tokens)
        for rows in scheduled:
            if rows.status is Status.PROPOSING and rows.is_complete:
                rows.sequence.rest()
            elif rows.is_complete:
                events.append(self._commit(rows.sequence))
        return events

    def _measure(self, scheduled: Sequence[ScheduledRows]) -> None:
        """What the step computes, and how long that takes."""
        size = self.drafting.step_size
        num_sequences, num_tokens, num_context_tokens = size.num_sequences, size.num_tokens, size.num_context_tokens
        num_decoding, num_prefill_tokens = num_sequences, 0
        for rows in scheduled:
            if rows.status is Status.PROPOSING and rows.is_complete:
                # Its last row, and itself, are the drafting's already.
                num_tokens += rows.num_rows - 1
                continue
            num_sequences += 1
            num_tokens += rows.num_rows
            num_context_tokens += rows.end_place
            num_decoding += rows.is_decode
            num_prefill_tokens += 0 if rows.is_decode else rows.num_rows
        self.step_s = self._step_cost.step_s(num_sequences, num_tokens, num_context_tokens)
        if num_tokens:
            self._count_step(num_decoding, num_tokens)
            self._prefill_ns += self.step_costs.add(num_tokens, num_prefill_tokens, 1e9 * self.step_s)

    def _commit(self, sequence: EngineSequence) -> Event:
        verdict = emulated_verdict(sequence, self._language_model, self.model.max_context_tokens)
        self.kv_cache.register_full_blocks(sequence, sequence.num_committed_tokens)
        if verdict.finish_reason is not None:
            self._intake.forget(sequence)
        return verdict
