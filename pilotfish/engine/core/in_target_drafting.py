"""Drafters that live in their target, because they look at its hidden states.

After each step the engine shows such a drafter what the target has computed and kept; the drafter keeps
its own cache in step and drafts for the sequences that want it. Those drafts are verified in the next
step: no round trip, no wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.draft_costs import DEFAULT_THRESHOLDS, DraftCosts, Thresholds
from pilotfish.engine.core.drafts import NO_DRAFTS, Drafts
from pilotfish.engine.core.forced_drafts import ForcedDrafts
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import DecodeTask
from pilotfish.speculation.trees.growth import num_growth_places
from pilotfish.step_table import num_free_nodes
from pilotfish.types import BLOCK_SIZE, TreeRequest

logger = logging.getLogger(__name__)


class DraftWish(msgspec.Struct, frozen=True):
    """Drafts wanted after a sequence's last token."""

    sequence: EngineSequence
    num_draft_tokens: int
    """Draft tokens in a row, at most; at least 1. The sequence's blocks have room for them."""
    first_position: int = 0
    """Position of the token in the first slot of the drafter's blocks."""
    tree: TreeRequest | None = None
    """Whether and how the draft may branch. The blocks then have room for `num_tree_places` tokens."""
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    """What the draft must promise to go on."""
    states: list[Any] | None = None
    """Gets a head's hidden states of a chain's drafts, the last one's aside; None: nobody wants them."""


def num_tree_places(request: TreeRequest, depth: int) -> int:
    """Slots behind a sequence's tokens that growing a tree and verifying it takes."""
    return max(request.max_nodes, num_growth_places(request, depth))


class InTargetDrafter(Protocol):
    """A drafter in its target's decoder. Not thread-safe."""

    name: str
    """Name in `target.drafter.proposer`."""
    max_draft_tokens: int | None
    """The most draft tokens in a row; None: any number."""

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
        self,
        drafter: InTargetDrafter,
        kv_cache: KVCache,
        *,
        max_context_tokens: int,
        step_s: Callable[[float], float],
        clock_ns: Callable[[], int],
        forced: ForcedDrafts | None = None,
        version: Callable[[], int] = lambda: 0,
    ) -> None:
        """step_s: seconds of a step by its rows, as things stand. forced: drafts where a grammar leaves no choice, in
        the drafter's place. version: that of a head which drafts."""
        self._drafter = drafter
        self._kv_cache = kv_cache
        self._max_context_tokens = max_context_tokens
        self._step_s = step_s
        self._clock_ns = clock_ns
        self._forced = forced
        self._costs = DraftCosts()
        self._version = version

    def after_step(self, kept: Sequence[KeptRows], num_decoded: int, elapsed_ns: int, num_sequences: int) -> None:
        """Call it when the step is committed, before finished sequences let go of their blocks.

        num_decoded: tokens that it committed beside prefills. elapsed_ns: its time, without theirs.
        num_sequences: that decode, in this step or not.
        """
        start_ns, num_rounds = self._clock_ns(), self._drafter.num_rounds
        self._draft(kept, num_sequences)
        if num_decoded:
            num_rounds = self._drafter.num_rounds - num_rounds
            self._costs.add(num_decoded, elapsed_ns / 1e9, num_rounds, (self._clock_ns() - start_ns) / 1e9)

    def _draft(self, kept: Sequence[KeptRows], num_sequences: int) -> None:
        wishes = self._wishes(kept, num_sequences)
        try:
            drafts = dict(zip(wishes, self._followed(kept, wishes), strict=True))
        except Exception:
            # Fail open: what a drafter does wrong costs no request.
            logger.exception("the drafter %s failed; its sequences go on without drafts", self._drafter.name)
            for entry in kept:
                entry.sequence.forget_in_target_drafts()
            return
        for index, entry in enumerate(kept):
            entry.sequence.suggest(drafts.get(index, NO_DRAFTS), self._version())

    def _followed(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        thresholds = next((wish.thresholds for wish in wishes.values()), DEFAULT_THRESHOLDS)
        return worthwhile(self._drafter.follow(kept, wishes), thresholds)

    def _wishes(self, kept: Sequence[KeptRows], num_sequences: int) -> dict[int, DraftWish]:
        """Wishes by index in kept: what the runs ask for, as far as it could be output and the cache has room for
        it."""
        asked: dict[int, tuple[int, TreeRequest | None]] = {}
        for index, rows in enumerate(kept):
            run = rows.sequence.run
            if run is not None and (length := self._num_draft_tokens(rows.sequence, run)) > 0:
                asked[index] = length, run.tree
        if not asked:
            return {}
        longest = max(length for length, _ in asked.values())
        most = max((tree.max_nodes for _, tree in asked.values() if tree is not None), default=0)
        num_nodes = num_free_nodes(self._step_s, num_sequences, longest, most)
        thresholds = self._costs.thresholds(self._step_s, num_sequences, len(asked) * longest, len(asked) * num_nodes)
        wishes = {}
        for index, (length, tree) in asked.items():
            if tree is not None and num_nodes < tree.max_nodes:
                tree = msgspec.structs.replace(tree, max_nodes=num_nodes) if num_nodes > length else None
            wish = self._wish(kept[index].sequence, length, tree, thresholds)
            if wish is not None:
                wishes[index] = wish
        return wishes

    def _num_draft_tokens(self, sequence: EngineSequence, run: DecodeTask) -> int:
        """Draft tokens that the sequence's run wants next and could output, one after the other."""
        length = len(sequence.tokens)
        if sequence.num_computed_tokens + 1 < length:  # still catching up with its tokens
            return 0
        if self._forced is not None and self._forced.behind(sequence):
            return 0
        num_remaining = min(
            run.goal_length - length,
            sequence.sampling.max_tokens - sequence.num_output_tokens,
            self._max_context_tokens - length,
        )
        most = self._drafter.max_draft_tokens
        wanted = run.num_draft_tokens if most is None else min(run.num_draft_tokens, most)
        return min(wanted, num_remaining - 1)  # the target adds a token of its own

    def _wish(
        self, sequence: EngineSequence, num_draft_tokens: int, tree: TreeRequest | None, thresholds: Thresholds
    ) -> DraftWish | None:
        """A wish with room for the tree, else for a chain, else for as much of one as there is."""
        length = len(sequence.tokens)
        if tree is not None and self._kv_cache.reserve(sequence, length + num_tree_places(tree, num_draft_tokens)):
            return DraftWish(sequence, num_draft_tokens, tree=tree, thresholds=thresholds)
        if self._kv_cache.reserve(sequence, length + num_draft_tokens):
            return DraftWish(sequence, num_draft_tokens, thresholds=thresholds)
        num_draft_tokens = min(num_draft_tokens, len(sequence.block_ids) * BLOCK_SIZE - length)
        return DraftWish(sequence, num_draft_tokens, thresholds=thresholds) if num_draft_tokens > 0 else None


def worthwhile(drafts: Sequence[Drafts], thresholds: Thresholds) -> list[Drafts]:
    """The drafts without tokens of chains that are not worth their rows: the likeliest of all sequences are."""
    if not thresholds.row_prices:
        return list(drafts)
    # No token is likelier than the one before it: the best ones are the beginnings of chains.
    ranked = sorted(
        (-confidence, place, index)
        for index, each in enumerate(drafts)
        for place, confidence in enumerate(each.confidences)
    )
    num_others = sum(len(each) for each in drafts if not each.confidences)
    num_rows, _ = thresholds.best([-confidence for confidence, _, _ in ranked], num_others)
    lengths = [0] * len(drafts)
    for _, _, index in ranked[:num_rows]:
        lengths[index] += 1
    return [each.cut(lengths[index], len(each)) if each.confidences else each for index, each in enumerate(drafts)]
