"""Drafters that live in their target, because they look at its hidden states.

After each step the engine shows such a drafter what the target has computed and kept; the drafter keeps
its own cache in step and drafts for the sequences that want it. Those drafts are verified in the next
step: no round trip, no wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds
from pilotfish.engine.core.draft_wish import DraftWish, num_tree_places
from pilotfish.engine.core.drafts import NO_DRAFTS, Drafts
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.sequence import DecodeTask, EngineSequence
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)


class InTargetDrafter(Protocol):
    """A drafter in its target's decoder. Not thread-safe."""

    name: str
    """As `target.drafter.proposer` names it."""

    @property
    def num_rounds(self) -> int:
        """Forwards that drafts have taken so far."""

    def allocate(self, num_blocks: int) -> int:
        """Make room for num_blocks blocks of its own cache, numbered as the target's; returns its bytes."""

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> Sequence[Drafts]:
        """Take in a step, right after it: the decoder still has its hidden states. One draft for each wish.

        wishes: by index in kept, ascending, the drafts that the sequences want now.

        Writes nothing but its own cache, `drafter_state` of the sequences, and slots behind their committed tokens.
        """


class InTargetDrafting:
    """Shows the drafter every step and gives its drafts to the sequences."""

    def __init__(
        self, drafter: InTargetDrafter, kv_cache: KVCache, *, max_context_tokens: int, clock_ns: Callable[[], int]
    ) -> None:
        self._drafter = drafter
        self._kv_cache = kv_cache
        self._max_context_tokens = max_context_tokens
        self._clock_ns = clock_ns
        self._costs = DraftCosts()

    def after_step(self, kept: Sequence[KeptRows], num_rows: int, num_tokens: int, elapsed_ns: int) -> None:
        """Call it when the step is committed, before finished sequences let go of their blocks.

        num_rows, num_tokens, elapsed_ns: rows that the step computed, tokens that it committed, and its time.
        """
        self._costs.add_step(num_rows, elapsed_ns / 1e9, num_tokens)
        start_ns, num_rounds = self._clock_ns(), self._drafter.num_rounds
        self._draft(kept)
        self._costs.add_draft(self._drafter.num_rounds - num_rounds, (self._clock_ns() - start_ns) / 1e9)

    def _draft(self, kept: Sequence[KeptRows]) -> None:
        thresholds = self._costs.thresholds()
        wanted = ((index, self._wish(rows.sequence, thresholds)) for index, rows in enumerate(kept))
        wishes = {index: wish for index, wish in wanted if wish is not None}
        try:
            drafts = dict(zip(wishes, self._drafter.follow(kept, wishes), strict=True))
        except Exception:
            # Fail open: what a drafter does wrong costs no request.
            logger.exception("the drafter %s failed; its sequences go on without drafts", self._drafter.name)
            for entry in kept:
                entry.sequence.forget_in_target_drafts()
            return
        for index, entry in enumerate(kept):
            if isinstance(entry.sequence.task, DecodeTask):
                entry.sequence.task.drafts = drafts.get(index, NO_DRAFTS)

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
