"""What a drafter's engine drafts ahead of one sequence, as a tree behind its committed tokens.

First come the drafts that are being verified, a chain of nodes; then a branch for each assumed outcome: the
target's own token, and the drafts that continue it. All branches grow by one token in each step, in one batch.
The newest draft of a branch is no node: its keys and values are not computed. Where it is not known what else the
drafter thinks of at the drafts' positions, a step asks it at the last token, and the next one at all the drafts.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.engine.core.drafts import DraftedChain, Drafts
from pilotfish.messages import Predrafted, PredraftRequest
from pilotfish.speculation.trees.fan_out import likeliest_outcomes, rivals, split_budget
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.speculation.trees.tree import MAX_TREE_NODES, ROOT, DraftTree
from pilotfish.types import SparseDistribution


@dataclass(slots=True)
class PredraftBranch:
    """The draft for one assumed outcome."""

    assumed_token_ids: tuple[int, ...]
    nodes: list[int]
    """Nodes of the target's own token, then of the drafts."""
    drafts: DraftedChain = field(default_factory=DraftedChain)

    def to_follow(self, num_tokens: int) -> PredraftBranch | None:
        """The branch with drafts that are to be followed from the start; None where they are fewer than num_tokens."""
        if len(self.drafts) < num_tokens:
            return None
        return PredraftBranch(self.assumed_token_ids, [], DraftedChain(self.drafts.token_ids, self.drafts.probs))


class PredraftGrowth:
    """See the module. Its nodes lie in the KV cache behind the sequence's tokens, in the order they came."""

    def __init__(self, verified: DraftedChain, request: PredraftRequest, num_draft_tokens: int) -> None:
        """verified: the sequence's drafts, at least one. Those with candidates but for the last of them are in the KV
        cache; the others are followed. num_draft_tokens: of each prepared draft, as far as the request's budget lasts.
        """
        self._verified = verified
        self._acceptance = request.acceptance
        num_nodes = len(verified.token_ids)
        num_outcomes, self._depth = split_budget(request.max_tokens, num_draft_tokens)
        self._max_outcomes = min(num_outcomes, (MAX_TREE_NODES - num_nodes) // self._depth)
        self._token_ids = list(verified.token_ids)
        self._parents = list(range(ROOT, num_nodes - 1))
        self._tree = DraftTree.chain(num_nodes)
        self.branches: list[PredraftBranch] = []
        self.num_computed = max(0, len(verified.candidates) - 1)
        """Nodes in the KV cache, if all tokens of the sequence are."""

    @property
    def has_room(self) -> bool:
        """Whether anything can be prepared within the budget and the size of a tree."""
        return self._max_outcomes > 0

    @property
    def nodes(self) -> Drafts:
        """The tree's nodes, behind the sequence's tokens, as far as the next step computes them."""
        num_nodes = len(self._parents) if self._verified.candidates else 0
        if len(self._tree) != num_nodes:
            self._tree = DraftTree(tuple(self._parents[:num_nodes]))
        return Drafts(tuple(self._token_ids[:num_nodes]), (), self._tree)

    @property
    def num_logit_rows(self) -> int:
        """Nodes whose next tokens are wanted, the last ones; or the last token."""
        return len(self.paths())

    @property
    def is_choosing(self) -> bool:
        """Whether the next step shows what the target may say in place of verified drafts or after them; when all of
        that is known, branches grow."""
        return not self.branches

    def paths(self) -> list[list[int]]:
        """The tokens from the sequence's last one to each node whose next tokens are wanted."""
        if self.is_choosing:
            num_known = len(self._verified.candidates)
            ends = range(num_known, len(self._verified) + 1) if num_known else [0]
            return [self._verified.token_ids[:end] for end in ends]
        return [[*branch.assumed_token_ids, *branch.drafts.token_ids] for branch in self.branches]

    def choose(self, candidates: Sequence[Sequence[Candidate]]) -> None:
        """Take what may follow each of the paths; once that includes the bonus, begin a branch for each of the
        likeliest outcomes."""
        verified = self._verified
        if not verified.candidates:
            verified.candidates.extend(candidates)
            return
        verified.candidates.extend(candidates[:-1])
        at_positions = [
            rivals(others, token_id) for others, token_id in zip(verified.candidates, verified.token_ids, strict=True)
        ]
        outcomes = likeliest_outcomes(
            self._acceptance, [*at_positions, rivals(candidates[-1], None)], self._max_outcomes
        )
        for outcome in outcomes:
            num_accepted = outcome.num_accepted_tokens
            assumed = (*verified.token_ids[:num_accepted], outcome.token_id)
            self.branches.append(PredraftBranch(assumed, [self._add(outcome.token_id, num_accepted - 1)]))

    def extend(
        self, drafts: Sequence[tuple[int, SparseDistribution | None]], candidates: Sequence[Sequence[Candidate]]
    ) -> bool:
        """Take the next draft of each branch, and what it was drawn from; whether the drafts are as long now as was
        wanted."""
        for branch, (token_id, probs), at in zip(self.branches, drafts, candidates, strict=True):
            branch.drafts.add(token_id, probs, at)
        is_complete = len(self.branches[0].drafts.token_ids) == self._depth
        if not is_complete:
            for branch in self.branches:
                branch.nodes.append(self._add(branch.drafts.token_ids[-1], branch.nodes[-1]))
        return is_complete

    def prepared(self, sequence_id: int, base_length: int) -> Predrafted:
        """A draft for each outcome, once they are complete."""
        return Predrafted(
            sequence_id=sequence_id,
            base_length=base_length,
            verified_token_ids=tuple(self._verified.token_ids),
            num_accepted_tokens=tuple(len(branch.assumed_token_ids) - 1 for branch in self.branches),
            own_token_ids=tuple(branch.assumed_token_ids[-1] for branch in self.branches),
            draft_token_ids=tuple(token_id for branch in self.branches for token_id in branch.drafts.token_ids),
            draft_probs=tuple(probs for branch in self.branches for probs in branch.drafts.probs),
        )

    def follow(self, token_ids: Sequence[int]) -> tuple[list[int], PredraftBranch | None]:
        """What is known of a text that goes on with token_ids: the computed nodes on its way, and the branch that
        assumed exactly these tokens, as far as it has drafts; its computed nodes are then on the way as well."""
        for branch in self.branches:
            if branch.assumed_token_ids == tuple(token_ids) and branch.drafts.token_ids:
                computed = (node for node in branch.nodes if node < self.num_computed)
                return [*range(len(token_ids) - 1), *computed], branch
        path: list[int] = []
        node = ROOT
        for token_id in token_ids:
            children = (child for child in range(node + 1, self.num_computed) if self._parents[child] == node)
            found = next((child for child in children if self._token_ids[child] == token_id), None)
            if found is None:
                break
            path.append(found)
            node = found
        return path, None

    def _add(self, token_id: int, parent: int) -> int:
        self._token_ids.append(token_id)
        self._parents.append(parent)
        return len(self._token_ids) - 1
