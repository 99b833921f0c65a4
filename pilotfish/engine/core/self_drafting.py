"""Drafters that live beside their target, because they look at its hidden states.

After each step the engine shows such a drafter what the target has computed and kept; the drafter keeps
its own cache in step and drafts for the sequences that want it. Those drafts are verified in the next
step: no round trip, no wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds
from pilotfish.engine.core.kept_rows import kept_step_rows
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import DecodeTask, Drafts, EngineSequence
from pilotfish.engine.drafting.draft_growth import DraftWish, num_tree_places
from pilotfish.speculation.rounds import Outcome
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of one sequence that a step has computed and kept."""

    sequence: EngineSequence
    """As it is after the step: its last token is committed and not computed yet."""
    first_position: int
    step_rows: Sequence[int]
    """The row in the step of each position from first_position on; at least one."""
    last_logit_row: int | None
    """Place of the last kept row among the step's logit rows; None when its logits were not wanted."""
    wish: DraftWish | None
    """The draft that is wanted now."""


class SelfDrafter(Protocol):
    """A drafter beside its target's decoder. Not thread-safe."""

    name: str
    """As `target.self_drafter.proposer` names it."""

    @property
    def num_rounds(self) -> int:
        """Forwards that drafts have taken so far."""

    def allocate(self, num_blocks: int) -> int:
        """Make room for num_blocks blocks of its own cache, numbered as the target's; returns its bytes."""

    def follow(self, kept: Sequence[KeptRows]) -> list[Drafts]:
        """Take in a step, right after it: the decoder still has its hidden states. One draft per entry.

        Writes nothing but its own cache, `drafter_state` of the sequences, and slots behind their committed tokens.
        """


class SelfDrafting:
    """Shows the drafter every step and gives its drafts to the sequences."""

    def __init__(
        self, drafter: SelfDrafter, kv_cache: KVCache, *, max_context_tokens: int, clock_ns: Callable[[], int]
    ) -> None:
        self._drafter = drafter
        self._kv_cache = kv_cache
        self._max_context_tokens = max_context_tokens
        self._clock_ns = clock_ns
        self._costs = DraftCosts()

    def after_step(self, scheduled: Sequence[ScheduledRows], outcomes: Mapping[int, Outcome], elapsed_ns: int) -> None:
        """Call it when the step is committed, before finished sequences let go of their blocks.

        outcomes: by sequence id, of those that reached the end of their task. elapsed_ns: time of the step.
        """
        num_tokens = sum(len(outcome.token_ids) for outcome in outcomes.values())
        self._costs.add_step(sum(rows.num_rows for rows in scheduled), elapsed_ns / 1e9, num_tokens)
        start_ns, num_rounds = self._clock_ns(), self._drafter.num_rounds
        self._draft(self._kept(scheduled, outcomes))
        self._costs.add_draft(self._drafter.num_rounds - num_rounds, (self._clock_ns() - start_ns) / 1e9)

    def _kept(self, scheduled: Sequence[ScheduledRows], outcomes: Mapping[int, Outcome]) -> list[KeptRows]:
        thresholds = self._costs.thresholds()
        kept: list[KeptRows] = []
        end_row = first_logit_row = 0
        for rows, step_rows in zip(scheduled, kept_step_rows(scheduled, outcomes), strict=True):
            end_row += rows.num_rows
            # The logit rows are the last ones of the sequence's rows.
            last_logit_row = first_logit_row + step_rows[-1] - (end_row - rows.num_logit_rows)
            first_logit_row += rows.num_logit_rows
            kept.append(
                KeptRows(
                    sequence=rows.sequence,
                    first_position=rows.first_position,
                    step_rows=step_rows,
                    last_logit_row=last_logit_row if rows.is_complete else None,
                    wish=self._wish(rows.sequence, thresholds),
                )
            )
        return kept

    def _draft(self, kept: Sequence[KeptRows]) -> None:
        try:
            drafts = self._drafter.follow(kept)
        except Exception:
            # Fail open: what a drafter does wrong costs no request.
            logger.exception("the drafter %s failed; its sequences go on without drafts", self._drafter.name)
            for entry in kept:
                entry.sequence.forget_self_drafts()
            return
        for entry, drafted in zip(kept, drafts, strict=True):
            if isinstance(entry.sequence.task, DecodeTask):
                entry.sequence.task.drafts = drafted

    def _wish(self, sequence: EngineSequence, thresholds: Thresholds) -> DraftWish | None:
        """What the run asks for, as far as it could be output and the cache has room for it."""
        task = sequence.task
        if not isinstance(task, DecodeTask) or task.num_draft_tokens == 0:
            return None
        length = len(sequence.tokens)
        if sequence.num_computed_tokens + 1 < length:
            return None  # still catching up with its tokens
        num_remaining = min(
            task.goal_length - length,
            sequence.sampling.max_tokens - sequence.num_output_tokens,
            self._max_context_tokens - length,
        )
        num_drafts = min(task.num_draft_tokens, num_remaining - 1)  # the target adds a token of its own
        if num_drafts < 1:
            return None
        if task.tree is not None:
            if self._kv_cache.reserve(sequence, length + num_tree_places(task.tree, num_drafts)):
                return DraftWish(sequence, num_drafts, tree=task.tree, thresholds=thresholds)
        elif self._kv_cache.reserve(sequence, length + num_drafts):
            return DraftWish(sequence, num_drafts, thresholds=thresholds)
        num_drafts = min(num_drafts, len(sequence.block_ids) * BLOCK_SIZE - length)
        return DraftWish(sequence, num_drafts, thresholds=thresholds) if num_drafts > 0 else None
