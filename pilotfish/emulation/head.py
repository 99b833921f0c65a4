"""A draft head in the target, without weights: the passes that a real one makes, and a guess for each.

As with drafters/eagle3/in_target.py, rows wait until a block is full or a draft is wanted, the first pass takes them
in, and each further one adds a token, or a tree's level, to the drafts that go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul

from pilotfish.emulation.drafter import EmulatedDrafter
from pilotfish.emulation.profiles import StepCost
from pilotfish.engine.core.draft_costs import Thresholds
from pilotfish.engine.core.drafts import DraftedChain, Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.types import BLOCK_SIZE, TreeRequest


class EmulatedHead:
    """See the module and InTargetDrafter. Its `drafter_state` of a sequence is the first position not taken in."""

    name = "eagle3"
    max_draft_tokens: int | None = None

    def __init__(self, drafter: EmulatedDrafter, cost: StepCost, spend: Callable[[float], None]) -> None:
        """spend: takes the seconds of each pass, during which the target stands still."""
        self._drafter = drafter
        self._cost = cost
        self._spend = spend
        self.num_rounds = 0

    def allocate(self, num_blocks: int) -> int:
        """Nothing: the profile says what a KV cache holds."""
        del num_blocks
        return 0

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        due: list[tuple[EngineSequence, int]] = []
        for index, rows in enumerate(kept):
            sequence, first, end = rows.sequence, rows.first_position, rows.end_position
            if isinstance(sequence.drafter_state, int):
                first = min(first, sequence.drafter_state)
            fills_a_block = first // BLOCK_SIZE < end // BLOCK_SIZE
            is_due = index in wishes or fills_a_block
            sequence.drafter_state = end if is_due else first
            if is_due:
                due.append((sequence, end - first))
        self._pass(due)
        growths = [_growth(wish) for wish in wishes.values()]
        active = growths
        while active:
            for growth in active:
                growth.extend(self._drafter)
            active = _going_on(growths, active)
            self._pass([(growth.wish.sequence, growth.num_rows) for growth in active])
        return [growth.drafts() for growth in growths]

    def _pass(self, rows: Sequence[tuple[EngineSequence, int]]) -> None:
        """One forward over so many rows of each sequence."""
        if rows:
            self.num_rounds += 1
            num_rows = sum(count for _, count in rows)
            self._spend(self._cost.step_s(len(rows), num_rows, sum(len(sequence.tokens) for sequence, _ in rows)))


@dataclass(slots=True, eq=False)
class _Chain:
    """A growing draft in which each token continues the one before it."""

    wish: DraftWish
    chain: DraftedChain = field(default_factory=DraftedChain)
    acceptances: list[float] = field(default_factory=list)
    num_rows = 1

    @property
    def confidences(self) -> tuple[float, ...]:
        return tuple(accumulate(self.acceptances, mul))

    @property
    def is_done(self) -> bool:
        return len(self.chain) >= self.wish.num_draft_tokens

    def extend(self, drafter: EmulatedDrafter) -> None:
        guess = drafter.guess(self.wish.sequence, self.chain.token_ids, len(self.chain))
        self.chain.add(guess.draft.token_id, guess.draft.probs)
        self.acceptances.append(guess.acceptance)

    def drafts(self) -> Drafts:
        # What was drawn is verified, as of a real head.
        return replace(self.chain.drafts, confidences=() if self.chain.probs else self.confidences)


class _Tree:
    """Grown by confidence; see speculation/trees/growth.py."""

    def __init__(self, wish: DraftWish, request: TreeRequest) -> None:
        self.wish = wish
        self._proposal = TreeProposal(
            request,
            wish.num_draft_tokens,
            min_confidence=wish.thresholds.round,
            min_node_confidence=wish.thresholds.node,
        )

    @property
    def is_done(self) -> bool:
        return self._proposal.is_done

    @property
    def num_rows(self) -> int:
        """Rows of the next pass: a row for each node of the newest level."""
        return self._proposal.num_logit_rows

    def extend(self, drafter: EmulatedDrafter) -> None:
        guesses = (drafter.guess(self.wish.sequence, path, len(path)) for path in self._proposal.paths())
        self._proposal.extend([guess[: self._proposal.branching] for guess in guesses])

    def drafts(self) -> Drafts:
        return self._proposal.drafts(self.wish.sequence.sampling)


def _growth(wish: DraftWish) -> _Chain | _Tree:
    return _Chain(wish) if wish.tree is None else _Tree(wish, wish.tree)


def _going_on(growths: Sequence[_Chain | _Tree], active: Sequence[_Chain | _Tree]) -> list[_Chain | _Tree]:
    """Those that another pass continues, as engine/drafting/draft_growth.py decides."""
    chains = [growth for growth in growths if isinstance(growth, _Chain)]
    newest = [growth.confidences[-1] for growth in active if isinstance(growth, _Chain) and not growth.is_done]
    thresholds: Thresholds = growths[0].wish.thresholds
    least = thresholds.least([each for chain in chains for each in chain.confidences], newest) if newest else 0.0
    return [
        growth
        for growth in active
        if not growth.is_done and (isinstance(growth, _Tree) or growth.confidences[-1] >= least)
    ]
