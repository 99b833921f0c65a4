"""Chooses the rows of each step.

There is no prefill or decode phase: every sequence has tokens that are not computed yet, and a step
computes as many as its budget allows. One row is a decode, K + 1 a verification, many a prefill chunk.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.drafts import NO_DRAFTS, Drafts
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import Status

PREFILL_SHARE = 0.25
"""Share of the budget kept for prefills while decodes could fill the whole step."""

MIN_PREFILL_ROWS = 16
"""Rows that prefills have all the same, since every step has a price of its own."""

MANY_PREFILLS = 16
"""From so many waiting prefills on, they are read as fast as can be."""

MAX_CATCH_UP_ROWS = 16
"""A drafter that computes no more rows of a sequence follows its rounds; more are a prompt or a longer absence."""

PATIENCE_NS = 10 * 10**9
"""The shorter prefill goes first, unless another has waited for so long."""

LONG_IDLE_NS = 10**9
"""A sequence that nothing was asked of for so long is not between two rounds: its client reads slowly, or thinks."""

Holders = dict[int, EngineSequence]
"""Sequences that hold blocks, by id."""


class ScheduledRows(msgspec.Struct, frozen=True):
    """Rows of one sequence in a step, from its first uncomputed token on."""

    sequence: EngineSequence
    status: Status
    """The sequence's status when they were scheduled."""
    first_position: int
    """Place of the first row in the sequence's blocks."""
    num_rows: int
    num_logit_rows: int
    """The last of the rows, whose logits are wanted: those of the last token and of the drafts, if the rows reach
    the end of a task."""
    drafts: Drafts = NO_DRAFTS
    """What lies behind the tokens, if the rows reach the end of a task: drafts to verify, or nodes of a tree that
    grows."""

    @property
    def end_place(self) -> int:
        return self.first_position + self.num_rows

    @property
    def is_complete(self) -> bool:
        """Whether the rows reach the end of a task."""
        return self.num_logit_rows > 0

    @property
    def is_decode(self) -> bool:
        """Whether the rows decode, verify or draft: the rest, with prompt tokens among them, is prefill."""
        if self.status is Status.PROPOSING:
            return self.is_complete and self.num_rows <= MAX_CATCH_UP_ROWS
        return self.num_rows == self.num_logit_rows


class Scheduler:
    """Stateless but for the step number; sequences carry their own state."""

    def __init__(
        self,
        kv_cache: KVCache,
        *,
        max_batch_tokens: int,
        max_draft_tokens: int,
        is_free: Callable[[int, int], bool] = lambda _num_rows, _num_more: False,
        step_ns: Callable[[float], float] = lambda _num_rows: 0.0,
        max_logit_rows: int | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """is_free: whether a step of num_rows rows takes about as long with num_more. step_ns: what a step of so many
        rows takes; 0 as long as nothing is known."""
        self._kv_cache = kv_cache
        self._is_free = is_free
        self._step_ns = step_ns
        self._max_batch_tokens = max_batch_tokens
        self._short = max_draft_tokens + 1
        self._max_logit_rows = max_logit_rows or max_batch_tokens
        self._clock_ns = clock_ns
        self._step = 0
        self.num_preemptions = 0
        self.oversized: list[EngineSequence] = []
        """Sequences of the last schedule that the whole pool could not hold: the caller fails them."""

    def schedule(self, sequences: Iterable[EngineSequence], max_rows: int | None = None) -> list[ScheduledRows]:
        """Rows of the next step, at most max_batch_tokens, and max_logit_rows that want logits; reserves their blocks.

        max_rows: of decodes and verifications together, if any of them can be scheduled so; None: what fits.

        A sequence that something is asked of may preempt others (take their blocks; they are recomputed later): those
        that were opened after it, and those that were idle for long. One that can have no block waits.
        """
        self._step += 1
        self.oversized = []
        ready = [(sequence, pending) for sequence in sequences if (pending := sequence.num_pending_rows) > 0]
        ready = self._without_dear_predrafts(ready)
        # What is drafted ahead last, else the longest unserved first; earlier opened ones win ties.
        ready.sort(key=lambda entry: (entry[0].status is Status.PREDRAFTING, entry[0].last_step))
        short, long = self._by_length(ready)
        budget = self._max_batch_tokens
        for_short = budget - int(budget * PREFILL_SHARE) if long else budget
        for_short = min(budget, max(for_short, self._short))
        scheduled: list[ScheduledRows] = []
        holders = {sequence.sequence_id: sequence for sequence in sequences if sequence.block_ids}
        if max_rows is not None:
            self._take(short, min(for_short, max_rows), scheduled, holders)
        if not scheduled:
            self._take(short, for_short, scheduled, holders)
        room = budget - sum(rows.num_rows for rows in scheduled)
        if long and room:
            num_awaited = sum(not sequence.is_idle for sequence in long)
            self._take(long, self._num_prefill_rows(room, num_awaited, scheduled, sequences), scheduled, holders)
        return scheduled

    def _num_prefill_rows(
        self, room: int, num_awaited: int, scheduled: Sequence[ScheduledRows], sequences: Iterable[EngineSequence]
    ) -> int:
        """Rows that prefills may have beside what is scheduled, at most `room`."""
        num_rows = sum(rows.num_rows for rows in scheduled) or self._num_between_rounds(sequences)
        return num_prefill_rows(self._step_ns, num_rows, num_awaited, room)

    def _by_length(
        self, ready: Iterable[tuple[EngineSequence, int]]
    ) -> tuple[list[EngineSequence], list[EngineSequence]]:
        """Sequences that decode, verify or draft, and those that read a prompt, in the order in which they do."""
        groups: tuple[list[EngineSequence], list[EngineSequence]] = ([], [])
        for sequence, pending in ready:
            groups[pending - sequence.num_logit_rows > MAX_CATCH_UP_ROWS].append(sequence)
        groups[1].sort(key=self._prefill_order)
        return groups

    def _prefill_order(self, sequence: EngineSequence) -> tuple[bool, bool, int]:
        """The fewest rows first, so that what is begun is finished and its blocks are of use; before them, in order of
        opening, what was preempted or has waited for long; last what nobody waits for."""
        is_overdue = sequence.is_preempted or self._clock_ns() - sequence.asked_ns >= PATIENCE_NS
        return sequence.is_idle, not is_overdue, sequence.open_order if is_overdue else sequence.num_pending_rows

    def _num_between_rounds(self, sequences: Iterable[EngineSequence]) -> int:
        """Sequences that will ask for a row presently, and wait for the step that is scheduled now."""
        now_ns = self._clock_ns()
        return sum(
            bool(each.block_ids)
            and not each.num_pending_rows
            and each.status is Status.IDLE
            and each.idle_ns(now_ns) < LONG_IDLE_NS
            for each in sequences
        )

    def _without_dear_predrafts(self, ready: list[tuple[EngineSequence, int]]) -> list[tuple[EngineSequence, int]]:
        """Sequences and their rows, without those that draft ahead where others would wait for it: it goes on when
        nothing else is to be done, and gives way with the next step."""
        awaited = [entry for entry in ready if entry[0].status is not Status.PREDRAFTING]
        num_rows, num_awaited = (sum(pending for _, pending in entries) for entries in (ready, awaited))
        if not awaited or (num_rows <= self._max_batch_tokens and self._is_free(num_awaited, num_rows - num_awaited)):
            return ready
        return awaited

    def _take(
        self, group: Iterable[EngineSequence], limit: int, scheduled: list[ScheduledRows], holders: Holders
    ) -> None:
        """Schedule of the group what fits in so many rows."""
        num_logits = self._max_logit_rows - sum(rows.num_logit_rows for rows in scheduled)
        for sequence in group:
            rows = self._fit(sequence, limit)
            if rows is None or (scheduled and rows.num_logit_rows > num_logits):
                continue
            if self._reserve(rows, scheduled, holders):
                scheduled.append(rows)
                sequence.last_step = self._step
                limit -= rows.num_rows
                num_logits -= rows.num_logit_rows

    def _fit(self, sequence: EngineSequence, limit: int) -> ScheduledRows | None:
        """The rows of the sequence that fit; drafts that somebody asked for are verified together or not at all."""
        if not sequence.block_ids and sequence.num_computed_tokens == 0:
            self._kv_cache.attach_prefix(sequence)
        pending, status, drafts = sequence.num_pending_rows, sequence.status, sequence.drafts
        num_cut = 0
        if status is Status.DECODING and pending > limit:
            # Cut by length only: choosing by content biases sampling.
            num_kept = len(drafts) - (pending - limit)
            drafts = drafts.cut(num_kept, num_kept)
            num_cut = len(sequence.drafts) - len(drafts)
            pending -= num_cut
        start = sequence.next_place
        if status is Status.PREDRAFTING and pending > self._max_batch_tokens:
            sequence.rest()  # it fits in no step
            return None
        if not pending:
            return None
        if pending <= limit:
            num_logit_rows = sequence.num_logit_rows - num_cut
            return ScheduledRows(
                sequence, status, start, pending, num_logit_rows, drafts if num_logit_rows else NO_DRAFTS
            )
        if status is Status.VERIFYING or drafts:
            pending -= len(drafts) + 1
        num_rows = min(pending, limit)
        return ScheduledRows(sequence, status, start, num_rows, 0) if num_rows > 0 else None

    def _reserve(self, rows: ScheduledRows, scheduled: list[ScheduledRows], holders: Holders) -> bool:
        """Blocks for the rows, preempting sequences that are not in this step if need be, and if it helps."""
        sequence, pool = rows.sequence, self._kv_cache.pool
        # What was taken comes back as a whole: a part of it would be in the way, and be taken again.
        num_rows = sequence.num_pending_rows if sequence.is_preempted else rows.num_rows
        needed = rows.first_position + num_rows
        if sequence.is_idle:  # nobody waits for it: it takes nothing from others
            has_room = self._kv_cache.reserve(sequence, needed)
            if not has_room and sequence.status is Status.PREDRAFTING:
                sequence.rest()
            return has_room
        if needed > pool.num_usable * pool.block_size:
            if sequence not in self.oversized:
                self.oversized.append(sequence)
            return False
        if sequence.block_ids:
            holders[sequence.sequence_id] = sequence  # a prefix was attached just now
        if not self._kv_cache.reserve(sequence, needed):
            victims = self._victims(sequence, scheduled, holders)
            if self._kv_cache.num_missing(sequence, needed) > pool.num_free_without(v.block_ids for v in victims):
                return False
            while not self._kv_cache.reserve(sequence, needed):
                self._preempt(victims.pop(), holders)
        holders[sequence.sequence_id] = sequence
        return True

    def _victims(
        self, sequence: EngineSequence, scheduled: Sequence[ScheduledRows], holders: Holders
    ) -> list[EngineSequence]:
        """Holders outside the step that give way to the sequence, the first to do so last: those that were idle for
        long, then those opened after it, the latest first."""
        spared = {sequence.sequence_id, *(rows.sequence.sequence_id for rows in scheduled)}
        now_ns = self._clock_ns()
        others = [holder for sequence_id, holder in holders.items() if sequence_id not in spared]
        idle = [holder for holder in others if holder.idle_ns(now_ns) >= LONG_IDLE_NS]
        later = [holder for holder in others if holder not in idle and holder.open_order > sequence.open_order]
        return [holder for group in (later, idle) for holder in sorted(group, key=lambda holder: holder.open_order)]

    def _preempt(self, victim: EngineSequence, holders: Holders) -> None:
        # What was only found in the prefix cache is found there again.
        self.num_preemptions += victim.num_computed_tokens > victim.num_cached_tokens
        self._kv_cache.release(victim)
        victim.is_preempted = True
        del holders[victim.sequence_id]


def num_prefill_rows(step_cost: Callable[[float], float], num_rows: int, num_awaited: int, room: int) -> int:
    """Rows that prefills may have in a step beside num_rows of those that decode, at most `room`.

    For each prefill that somebody waits for, num_awaited of them, the step may be twice as long as without: one prompt
    hardly slows those that decode, and where many wait, they are read as fast as can be. step_cost: what a step of so
    many rows takes, in any unit; 0 as long as nothing is known.
    """
    if not num_rows:
        return room
    longest = 2 ** min(max(1, num_awaited), MANY_PREFILLS) * step_cost(num_rows)
    num_fitting = bisect_right(range(room + 1), longest, key=lambda more: step_cost(num_rows + more)) - 1
    return min(room, max(MIN_PREFILL_ROWS, num_fitting))
