"""What is asked of a sequence, and what the sequence does because of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar

from pilotfish.engine.core.drafts import NO_DRAFTS, DraftedChain, Drafts
from pilotfish.engine.core.predraft_growth import PredraftGrowth
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.messages import PredraftRequest
from pilotfish.types import Timings, TreeRequest


class Status(Enum):
    """What a sequence does."""

    IDLE = auto()
    """Nothing is asked of it."""
    AWAITING_GRAMMAR = auto()
    """Its grammar is being compiled: no token can be decided before."""
    DECODING = auto()
    """It decodes up to a length. Drafts of a drafter in the target are verified as far as they fit into a step."""
    VERIFYING = auto()
    """It decodes one step with a peer's drafts, which are verified together or not at all."""
    PROPOSING = auto()
    """It drafts for a peer that waits."""
    PREDRAFTING = auto()
    """It drafts for what may be committed next. Nobody waits for that: everything else goes first."""

    @property
    def is_drafting(self) -> bool:
        """Whether logits become drafts; else they decide tokens."""
        return self in (Status.PROPOSING, Status.PREDRAFTING)


@dataclass(slots=True, kw_only=True)
class TimedTask:
    """When a task came and what it took."""

    arrival_ns: int = 0
    start_ns: int = 0
    """Start of the first step that served it; 0: none has."""
    compute_time_ns: int = 0
    """Steps that served it since its last result."""

    @property
    def timings(self) -> Timings:
        """Timings of the result that it comes to now."""
        return Timings(self.start_ns - self.arrival_ns, self.compute_time_ns)

    def serve(self, start_ns: int, elapsed_ns: int) -> None:
        """A step has computed rows of it."""
        self.start_ns = self.start_ns or start_ns
        self.compute_time_ns += elapsed_ns


@dataclass(slots=True, kw_only=True)
class DecodeTask(TimedTask):
    """Decode until the sequence is goal_length tokens long, with drafts or without."""

    growth: ClassVar[None] = None
    goal_length: int
    status: Status = Status.DECODING
    """DECODING or VERIFYING."""
    drafts: Drafts = NO_DRAFTS
    """What the next step verifies."""
    num_draft_tokens: int = 0
    """Drafts of the drafter in the target that a step may verify, at most; of a tree its depth."""
    tree: TreeRequest | None = None
    """How those drafts may branch; None: chains."""
    drafter_version: int = 0
    """Version of the head that made the drafts, if it was the one in the target."""

    @property
    def num_logit_rows(self) -> int:
        return 1 + len(self.drafts)


@dataclass(slots=True, kw_only=True)
class ProposeTask(TimedTask):
    """Draft num_draft_tokens tokens after the first base_length."""

    status: ClassVar[Status] = Status.PROPOSING
    base_length: int
    num_draft_tokens: int
    tree: TreeRequest | None = None
    growth: TreeProposal | None = None
    """The growth of a tree; None: a chain, whose drafts follow the sequence's tokens."""
    chain: DraftedChain = field(default_factory=DraftedChain)
    """The chain as far as it has come."""
    ahead: PredraftRequest | None = None
    """What to draft ahead of a chain once it is proposed."""
    is_prepared: bool = False
    """The draft has been proposed before: only what is drafted ahead of it is wanted."""

    @property
    def drafts(self) -> Drafts:
        return NO_DRAFTS if self.growth is None else self.growth.nodes

    @property
    def num_logit_rows(self) -> int:
        return 1 if self.growth is None else self.growth.num_logit_rows


@dataclass(slots=True, kw_only=True)
class PredraftTask(TimedTask):
    """Draft for what may be committed next."""

    status: ClassVar[Status] = Status.PREDRAFTING
    growth: PredraftGrowth

    @property
    def drafts(self) -> Drafts:
        return self.growth.nodes

    @property
    def num_logit_rows(self) -> int:
        return self.growth.num_logit_rows


Task = DecodeTask | ProposeTask | PredraftTask
"""Each has `drafts`, which lie behind the sequence's tokens: those to verify, or nodes of a tree that grows; and
`num_logit_rows`, the last rows, whose logits its next result takes."""
