"""The engine of a draft head that lives apart from its target: features come with each Propose.

A step drafts for every sequence that asks: one forward over the rows that features have come for, then one for each
further token of the drafts. Rows whose state was the head's own guess are written again when the target's features
of them come.

The token at position q takes the feature of q - 1. Where the first features are those of position f, the sequence
begins at f for the head: its place 0 holds the token at f, which has no feature before it and which nobody sees. Rotary
embeddings are relative, so places do as well as positions.

Legend: n positions, H hidden size.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pilotfish.config import EngineConfig
from pilotfish.engine.core.drafts import NO_DRAFTS, Drafts
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import DraftWish, num_tree_places
from pilotfish.engine.core.scheduler import LONG_IDLE_NS, MAX_CATCH_UP_ROWS, ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import ProposeTask
from pilotfish.engine.drafting.draft_growth import DraftRows, HeadGrowth
from pilotfish.features import Features
from pilotfish.messages import Command, Event, Opened, OpenSequence, Propose
from pilotfish.models.feature_codec import decode_features
from pilotfish.models.feature_head import FIRST_KEY, FeatureHead
from pilotfish.types import ModelInfo, Timings

logger = logging.getLogger(__name__)

MAX_PROMPT_ROWS = 64
"""Prompt rows of a step: what others wait for while a prompt is read. With all of it in one step their drafts missed
their deadlines."""


@dataclass(slots=True)
class FeatureWindow:
    """Features of a sequence that rows will take, and where the head's part of the sequence begins."""

    origin: int
    """Position of the token at place 0."""
    first_position: int
    """Position of the first of values."""
    values: Tensor
    """Features [n, 3H]."""

    def add(self, first_position: int, values: Tensor) -> bool:
        """Take in features; False and no change where they do not continue those before."""
        if not self.first_position <= first_position <= self.first_position + len(self.values):
            return False
        self.values = torch.cat((self.values[: first_position - self.first_position], values))
        return True

    def covers(self, sequence: EngineSequence) -> bool:
        """Whether there are features for every row up to the last token's."""
        first, end = sequence.num_computed_tokens, len(sequence.tokens)
        return self.first_position < first < end <= self.first_position + len(self.values) + 1

    def next_rows(self, sequence: EngineSequence, num_rows: int) -> tuple[DraftRows, Tensor]:
        """The next rows that are not computed yet, and their states [n, 3H]."""
        first, end = sequence.num_computed_tokens, sequence.num_computed_tokens + num_rows
        states = self.values[first - 1 - self.first_position : end - 1 - self.first_position]
        return DraftRows(first - self.origin, sequence.tokens[first:end], sequence.block_ids), states

    def drop_computed(self, sequence: EngineSequence) -> None:
        """Rows are computed. The feature of the last token's stays: a repeated question asks for it again."""
        first_kept = min(sequence.num_computed_tokens - 1, len(sequence.tokens) - 2)
        num_done = first_kept - self.first_position
        self.values = self.values[num_done:].clone()
        self.first_position += num_done


class HeadCore(Engine):
    """See the module and Engine."""

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
        super().__init__(config, model, grammars=grammars, clock_ns=clock_ns, prefix_caching=False)
        self._max_rows = config.max_batch_tokens
        self._head = head
        head.allocate(self.kv_cache.pool.num_usable + 1)
        self._growth = HeadGrowth(head, model.vocab_size, top_m=top_m)

    @property
    def feature_width(self) -> int:
        """Values of a token's features."""
        return self._head.feature_width

    def _is_ready(self, sequence: EngineSequence) -> bool:
        return sequence.task is not None

    def _take(self, command: Command, now_ns: int) -> Event | None:
        sequence = self._sequences.get(command.sequence_id)
        if isinstance(command, Propose) and sequence is not None and _rewrites(sequence, command):
            # The features of what was replaced are gone: whoever asks has them and opens the sequence again.
            self._forget(command.sequence_id)
        answer = super()._take(command, now_ns)
        if answer is None and isinstance(command, OpenSequence):
            return Opened(command.sequence_id, 0)
        if answer is None and isinstance(command, Propose) and command.features is not None:
            self._take_features(self._sequences[command.sequence_id], command.features)
        return answer

    def _take_grammars(self) -> list[Event]:
        """Take compiled grammars: until its grammar is there, or if it fails, a sequence is drafted for as if it had
        none."""
        if self._grammars is not None:
            self._grammars.take_ready()
        return []

    def _take_features(self, sequence: EngineSequence, features: Features) -> None:
        """Features that make no sense are dropped: without them the sequence gets no drafts."""
        try:
            values = decode_features(features, width=self.feature_width, num_layers=len(self._head.feature_layers))
        except ValueError as error:
            logger.warning("the features of a sequence are dropped: %s", error)
            return
        values = values.to(self._head.device, self._head.dtype)
        window, first = sequence.drafter_state, features.first_position
        if not isinstance(window, FeatureWindow) or not window.add(first, values):
            self.kv_cache.release(sequence)
            sequence.drafter_state = FeatureWindow(first, first, values)
            sequence.num_computed_tokens = first + FIRST_KEY

    def _schedule(self, max_rows: int | None, events: list[Event]) -> list[ScheduledRows]:
        """Rows of those who wait for a proposal, the longest waiting first, with blocks for them: those who follow
        their rounds, then prompts, of which a step computes a part. Who cannot draft is answered in events."""
        left = self._max_rows if max_rows is None else min(self._max_rows, max_rows)
        left_for_prompts = MAX_PROMPT_ROWS if len(self._sequences) > 1 else left
        waiting = [(sequence, task) for sequence in self._sequences.values() if (task := sequence.proposing)]
        scheduled: list[ScheduledRows] = []
        for sequence, task in sorted(waiting, key=lambda pair: (_is_prompt(pair[0]), pair[1].arrival_ns)):
            num_pending = len(sequence.tokens) - sequence.num_computed_tokens
            is_prompt = _is_prompt(sequence)
            num_rows = min(num_pending, left, left_for_prompts) if is_prompt else num_pending
            if scheduled and (num_rows > left or (num_pending and not num_rows)):
                break
            window = sequence.drafter_state
            can_draft = isinstance(window, FeatureWindow) and window.covers(sequence)
            if not can_draft or not self._reserve(sequence, task):
                sequence.rest()
                timings = Timings(self._clock_ns() - task.arrival_ns)
                events.append(NO_DRAFTS.proposal(sequence.sequence_id, task.base_length, timings))
                continue
            sequence.last_step = self._num_steps
            num_logit_rows = int(num_rows == num_pending)
            first = sequence.num_computed_tokens
            scheduled.append(ScheduledRows(sequence, sequence.status, first, num_rows, num_logit_rows))
            left = max(0, left - num_rows)
            left_for_prompts -= num_rows if is_prompt else 0
        return scheduled

    def _reserve(self, sequence: EngineSequence, task: ProposeTask) -> bool:
        """Blocks for its rows and drafts; if it helps, sequences that nobody waits for are forgotten for it, the
        longest unserved first: those opened after it, and those idle for long."""
        num_drafts = task.num_draft_tokens
        if task.tree is not None:
            num_drafts = num_tree_places(task.tree, task.num_draft_tokens)
        num_places = len(sequence.tokens) - _window(sequence).origin + num_drafts
        if self.kv_cache.reserve(sequence, num_places):
            return True
        now_ns = self._clock_ns()
        victims = [
            other
            for other in self._sequences.values()
            if other.block_ids
            and other.task is None
            and (other.open_order > sequence.open_order or other.idle_ns(now_ns) >= LONG_IDLE_NS)
        ]
        room = self.kv_cache.pool.num_free_without(victim.block_ids for victim in victims)
        if self.kv_cache.num_missing(sequence, num_places) > room:
            return False
        victims.sort(key=lambda victim: victim.last_step)
        while not self.kv_cache.reserve(sequence, num_places):
            self._forget(victims.pop(0).sequence_id)
        return True

    def _run(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> list[Event]:
        drafts = self._draft(scheduled)
        elapsed_ns = self._clock_ns() - start_ns
        proposals: list[Event] = []
        for rows in scheduled:
            sequence, task = rows.sequence, rows.sequence.proposing
            assert task is not None
            sequence.serve(start_ns, elapsed_ns, rows.end_place)
            _window(sequence).drop_computed(sequence)
            if rows.is_complete:
                sequence.rest()
                drafted = drafts[sequence.sequence_id]
                proposals.append(drafted.proposal(sequence.sequence_id, task.base_length, task.timings))
        return proposals

    @torch.inference_mode()
    def _draft(self, scheduled: Sequence[ScheduledRows]) -> dict[int, Drafts]:
        """Run the rows, and draft for the sequences whose last rows they are. Changes no sequence."""
        parts, states = zip(
            *(_window(rows.sequence).next_rows(rows.sequence, rows.num_rows) for rows in scheduled), strict=True
        )
        ends = accumulate(rows.num_rows for rows in scheduled)
        last_rows = [end - 1 for rows, end in zip(scheduled, ends, strict=True) if rows.is_complete]
        output = self._growth.forward(parts, torch.cat(states), last_rows)
        wishes = [
            DraftWish(rows.sequence, task.num_draft_tokens, _window(rows.sequence).origin, task.tree)
            for rows in scheduled
            if rows.is_complete and (task := rows.sequence.proposing)
        ]
        drafts = self._growth.grow(wishes, output, last_rows) if wishes else []
        return {wish.sequence.sequence_id: each for wish, each in zip(wishes, drafts, strict=True)}


def _is_prompt(sequence: EngineSequence) -> bool:
    """Whether more is to be computed than a round leaves."""
    return len(sequence.tokens) - sequence.num_computed_tokens > MAX_CATCH_UP_ROWS


def _window(sequence: EngineSequence) -> FeatureWindow:
    assert isinstance(sequence.drafter_state, FeatureWindow), "the sequence has features"
    return sequence.drafter_state


def _rewrites(sequence: EngineSequence, command: Propose) -> bool:
    """Whether the command replaces or takes back committed tokens."""
    start = command.base_length - len(command.new_token_ids)
    known = tuple(sequence.tokens[max(0, start) :])
    return start >= 0 and known != command.new_token_ids[: len(known)]
