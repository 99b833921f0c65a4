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
from pilotfish.engine.core.scheduler import LONG_IDLE_NS, ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import ProposeTask
from pilotfish.engine.drafting.draft_growth import DraftRows, HeadGrowth
from pilotfish.features import Features
from pilotfish.messages import Command, Event, Opened, OpenSequence, Propose
from pilotfish.models.feature_codec import decode_features
from pilotfish.models.feature_head import FIRST_KEY, FeatureHead
from pilotfish.types import ModelInfo, Timings

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FeatureWindow:
    """Features of a sequence that rows will take, and where the head's part of the sequence begins."""

    origin: int
    """Position of the token at place 0."""
    first_position: int
    """Of values."""
    values: Tensor
    """[n, 3H]"""

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

    def next_rows(self, sequence: EngineSequence) -> tuple[DraftRows, Tensor]:
        """The rows that are not computed yet, the last token's at the end, and their states [n, 3H]."""
        first, end = sequence.num_computed_tokens, len(sequence.tokens)
        states = self.values[first - 1 - self.first_position : end - 1 - self.first_position]
        return DraftRows(first - self.origin, sequence.tokens[first:], sequence.block_ids), states

    def drop_computed(self, sequence: EngineSequence) -> None:
        """The rows up to the last token's are computed. Its own feature stays: a repeated question asks for it
        again."""
        num_done = len(sequence.tokens) - 2 - self.first_position
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
        """Until its grammar is there, or if it fails, a sequence is drafted for as if it had none."""
        if self._grammars is not None:
            self._grammars.take_ready()
        return []

    def _take_features(self, sequence: EngineSequence, features: Features) -> None:
        """Features that make no sense are dropped: without them the sequence gets no drafts."""
        try:
            values = decode_features(features, width=self.feature_width)
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
        """All rows of those who wait for a proposal, the longest waiting first, with blocks for them; who cannot draft
        is answered in events. A single sequence may have more rows than a step should take."""
        left = self._max_rows if max_rows is None else min(self._max_rows, max_rows)
        waiting = [(sequence, task) for sequence in self._sequences.values() if (task := sequence.proposing)]
        scheduled: list[ScheduledRows] = []
        for sequence, task in sorted(waiting, key=lambda pair: pair[1].arrival_ns):
            num_rows = len(sequence.tokens) - sequence.num_computed_tokens
            if scheduled and num_rows > left:
                break
            window = sequence.drafter_state
            can_draft = isinstance(window, FeatureWindow) and window.covers(sequence)
            if not can_draft or not self._reserve(sequence, task):
                sequence.rest()
                timings = Timings(self._clock_ns() - task.arrival_ns)
                events.append(NO_DRAFTS.proposal(sequence.sequence_id, task.base_length, timings))
                continue
            sequence.last_step = self._num_steps
            first = sequence.num_computed_tokens
            scheduled.append(ScheduledRows(sequence, sequence.status, first, num_rows, 1))
            left -= num_rows
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
        batch = [(rows.sequence, task) for rows in scheduled if (task := rows.sequence.proposing)]
        drafts = self._draft(batch)
        elapsed_ns = self._clock_ns() - start_ns
        proposals: list[Event] = []
        for (sequence, task), drafted in zip(batch, drafts, strict=True):
            sequence.serve(start_ns, elapsed_ns, len(sequence.tokens))
            _window(sequence).drop_computed(sequence)
            sequence.rest()
            proposals.append(drafted.proposal(sequence.sequence_id, task.base_length, task.timings))
        return proposals

    @torch.inference_mode()
    def _draft(self, batch: Sequence[tuple[EngineSequence, ProposeTask]]) -> list[Drafts]:
        """Run the rows and draft; changes no sequence."""
        rows, states = zip(*(_window(sequence).next_rows(sequence) for sequence, _ in batch), strict=True)
        last_rows = [end - 1 for end in accumulate(len(part.token_ids) for part in rows)]
        output = self._growth.forward(rows, torch.cat(states), last_rows)
        wishes = [
            DraftWish(sequence, task.num_draft_tokens, _window(sequence).origin, task.tree) for sequence, task in batch
        ]
        return self._growth.grow(wishes, output, last_rows)


def _window(sequence: EngineSequence) -> FeatureWindow:
    assert isinstance(sequence.drafter_state, FeatureWindow), "the sequence has features"
    return sequence.drafter_state


def _rewrites(sequence: EngineSequence, command: Propose) -> bool:
    """Whether the command replaces or takes back committed tokens."""
    start = command.base_length - len(command.new_token_ids)
    known = tuple(sequence.tokens[max(0, start) :])
    return start >= 0 and known != command.new_token_ids[: len(known)]
