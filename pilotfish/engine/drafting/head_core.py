"""The engine of a draft head that lives apart from its target: features come with each Propose.

A step drafts for every sequence that asks: one forward over the rows that features have come for, then one for each
further token of the drafts. A step in which nobody waits drafts ahead (head_predraft.py). Rows whose state was the
head's own guess are written again when the target's features of them come.

The token at position q takes the feature of q - 1. Where the first features are those of position f, the sequence
begins at f for the head: its place 0 holds the token at f, which has no feature before it and which nobody sees. Rotary
embeddings are relative, so places do as well as positions.

"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import msgspec
import torch
from torch import Tensor

from pilotfish.config import EngineConfig
from pilotfish.drafter_registry import DRAFTERS
from pilotfish.engine.core.draft_costs import DEFAULT_THRESHOLDS, Thresholds
from pilotfish.engine.core.drafted import add_drafted
from pilotfish.engine.core.drafts import NO_DRAFTS, DraftedChain, Drafts
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.scheduler import LONG_IDLE_NS, MAX_CATCH_UP_ROWS, ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask, ProposeTask, Status
from pilotfish.engine.drafting.draft_growth import HeadGrowth
from pilotfish.engine.drafting.feature_window import FeatureWindow, window_of
from pilotfish.engine.drafting.head_predraft import draft_ahead, keep_states
from pilotfish.engine.learning.recorder import Piece
from pilotfish.features import Features
from pilotfish.messages import EngineCommand, Event, Opened, OpenSequence, Proposal, Propose, SequenceError
from pilotfish.models.feature_codec import decode_features
from pilotfish.models.feature_head import FIRST_KEY, FeatureHead
from pilotfish.speculation.trees.growth import num_growth_places
from pilotfish.types import ModelInfo, Timings, TreeRequest

logger = logging.getLogger(__name__)

MAX_PROMPT_ROWS = 64
"""Prompt rows of a step: what others wait for while a prompt is read. With all of it in one step their drafts missed
their deadlines."""


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
        self._drafts_ahead = DRAFTERS[model.proposer].drafts_ahead

    @property
    def feature_width(self) -> int:
        """Values of a token's features."""
        return self._head.feature_width

    def _is_ready(self, sequence: EngineSequence) -> bool:
        return sequence.proposing is not None or _is_growing(sequence)

    def _take(self, command: EngineCommand, now_ns: int) -> Event | None:
        sequence = self._sequences.get(command.sequence_id)
        if isinstance(command, Propose) and sequence is not None and _rewrites(sequence, command):
            # The features of what was replaced are gone: whoever asks has them and opens the sequence again.
            self._forget(command.sequence_id)
        task = sequence and sequence.task
        answer = super()._take(command, now_ns)
        if isinstance(command, Propose) and sequence is not None and isinstance(task, PredraftTask):
            keep_states(sequence, task.growth, command.new_token_ids)
        if answer is None and isinstance(command, OpenSequence):
            return Opened(command.sequence_id, 0)
        is_taken = not isinstance(answer, SequenceError)
        if is_taken and isinstance(command, Propose) and command.features is not None:
            self._take_features(self._sequences[command.sequence_id], command.features)
        return self._of_version(answer) if isinstance(answer, Proposal) else answer

    def _of_version(self, proposal: Proposal) -> Proposal:
        """The proposal with the version that drafted it."""
        return msgspec.structs.replace(proposal, drafter_version=self.drafter_version)

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
        if self._recorder is not None and sequence.recording is not None:
            token_ids = sequence.tokens[features.first_position : features.end_position]
            self._recorder.add_features(Piece(sequence.recording, features.first_position, token_ids), features)
        values = values.to(self._head.device, self._head.dtype)
        window, first = sequence.drafter_state, features.first_position
        if not isinstance(window, FeatureWindow) or not window.add(first, values):
            self.kv_cache.release(sequence)
            sequence.drafter_state = FeatureWindow(first, first, values)
            sequence.num_computed_tokens = first + FIRST_KEY
        if not self._head.reads_text:
            sequence.num_computed_tokens = max(sequence.num_computed_tokens, len(sequence.tokens) - 1)

    def _schedule(self, max_rows: int | None, events: list[Event]) -> list[ScheduledRows]:
        """Rows of those who wait for a proposal, the longest waiting first, with blocks for them: those who follow
        their rounds, then prompts, of which a step computes a part. Who cannot draft is answered in events."""
        left = self._max_rows if max_rows is None else min(self._max_rows, max_rows)
        left_for_prompts = MAX_PROMPT_ROWS if len(self._sequences) > 1 else left
        waiting = [(sequence, task) for sequence in self._sequences.values() if (task := sequence.proposing)]
        if not waiting:
            return self._schedule_ahead(left)
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

    def _schedule_ahead(self, max_rows: int) -> list[ScheduledRows]:
        """Rows of those who draft ahead, the longest unserved first. They take blocks from nobody."""
        scheduled: list[ScheduledRows] = []
        for sequence in sorted(filter(_is_growing, self._sequences.values()), key=lambda growing: growing.last_step):
            first, num_rows, window = sequence.next_place, sequence.num_pending_rows, window_of(sequence)
            can_go_on = num_rows <= self._max_rows and (first >= len(sequence.tokens) or window.covers(sequence))
            if not can_go_on or not self.kv_cache.reserve(sequence, first + num_rows - window.origin):
                sequence.rest()
            elif num_rows <= max_rows:
                sequence.last_step = self._num_steps
                num_logit_rows, drafts = sequence.num_logit_rows, sequence.drafts
                scheduled.append(ScheduledRows(sequence, sequence.status, first, num_rows, num_logit_rows, drafts))
                max_rows -= num_rows
        return scheduled

    def _reserve(self, sequence: EngineSequence, task: ProposeTask) -> bool:
        """Blocks for its rows and drafts; if it helps, sequences that nobody waits for are forgotten for it, the
        longest unserved first: those opened after it, and those idle for long."""
        num_drafts = task.num_draft_tokens
        if task.tree is not None:
            num_drafts = num_growth_places(task.tree, task.num_draft_tokens)
        num_places = len(sequence.tokens) - window_of(sequence).origin + num_drafts
        if self.kv_cache.reserve(sequence, num_places):
            return True
        now_ns = self._clock_ns()
        victims = [
            other
            for other in self._sequences.values()
            if other.block_ids
            and other.proposing is None
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
        if scheduled[0].status is Status.PREDRAFTING:
            return self._draft_ahead(scheduled, start_ns)
        states: dict[int, list[Tensor]] = {rows.sequence.sequence_id: [] for rows in scheduled}
        drafts = self._draft(scheduled, states)
        elapsed_ns = self._clock_ns() - start_ns
        proposals: list[Event] = []
        for rows in scheduled:
            sequence, task = rows.sequence, rows.sequence.proposing
            assert task is not None
            sequence.serve(start_ns, elapsed_ns, rows.end_place)
            window_of(sequence).drop_computed(sequence)
            if rows.is_complete:
                sequence.rest()
                drafted = drafts[sequence.sequence_id]
                proposal = drafted.proposal(sequence.sequence_id, task.base_length, task.timings)
                proposals.append(self._of_version(proposal))
                if task.ahead is not None and drafted and self._drafts_ahead:
                    self.kv_cache.recompute_from(sequence, len(sequence.tokens) - 1)  # its state is not kept
                    window_of(sequence).draft_states = states[sequence.sequence_id]
                    chain = DraftedChain(list(drafted.token_ids))
                    sequence.draft_ahead(chain, task.ahead, task.num_draft_tokens)
        return proposals

    @torch.inference_mode()
    def _draft_ahead(self, scheduled: Sequence[ScheduledRows], start_ns: int) -> list[Event]:
        drafted = draft_ahead(self._growth, scheduled)
        elapsed_ns = self._clock_ns() - start_ns
        prepared: list[Event] = []
        for rows, each in zip(scheduled, drafted, strict=True):
            rows.sequence.serve(start_ns, elapsed_ns, rows.end_place)
            window_of(rows.sequence).drop_computed(rows.sequence)
            if (event := add_drafted(rows.sequence, each)) is not None:
                prepared.append(msgspec.structs.replace(event, drafter_version=self.drafter_version))
        return prepared

    @torch.inference_mode()
    def _draft(self, scheduled: Sequence[ScheduledRows], kept_states: dict[int, list[Tensor]]) -> dict[int, Drafts]:
        """Run the rows, and draft for the sequences whose last rows they are. Changes no sequence.

        kept_states: by sequence, gets what a DraftWish does.
        """
        parts, states = zip(
            *(window_of(rows.sequence).next_rows(rows.sequence, rows.num_rows) for rows in scheduled), strict=True
        )
        ends = accumulate(rows.num_rows for rows in scheduled)
        last_rows = [end - 1 for rows, end in zip(scheduled, ends, strict=True) if rows.is_complete]
        output = self._growth.forward(parts, torch.cat(states), last_rows)
        wishes = [
            DraftWish(
                rows.sequence,
                task.num_draft_tokens,
                window_of(rows.sequence).origin,
                task.tree,
                _thresholds(task.tree),
                states=kept_states[rows.sequence.sequence_id] if task.ahead is not None else None,
            )
            for rows in scheduled
            if rows.is_complete and (task := rows.sequence.proposing)
        ]
        drafts = self._growth.grow(wishes, output) if wishes else []
        return {wish.sequence.sequence_id: each for wish, each in zip(wishes, drafts, strict=True)}


def _thresholds(tree: TreeRequest | None) -> Thresholds:
    """What a draft of this shape must promise to go on."""
    if tree is None or not tree.row_price:
        return DEFAULT_THRESHOLDS
    return replace(DEFAULT_THRESHOLDS, node=tree.row_price)


def _is_growing(sequence: EngineSequence) -> bool:
    """Whether there is more to draft ahead."""
    return sequence.status is Status.PREDRAFTING and sequence.num_pending_rows > 0


def _is_prompt(sequence: EngineSequence) -> bool:
    """Whether more is to be computed than a round leaves."""
    return len(sequence.tokens) - sequence.num_computed_tokens > MAX_CATCH_UP_ROWS


def _rewrites(sequence: EngineSequence, command: Propose) -> bool:
    """Whether the command replaces or takes back committed tokens."""
    start = command.base_length - len(command.new_token_ids)
    known = tuple(sequence.tokens[max(0, start) :])
    return start >= 0 and known != command.new_token_ids[: len(known)]
