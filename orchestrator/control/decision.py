"""What the controller learns after each round, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.control.reasons import Reason
from pilotfish.step_table import StepTable

MEASURABLE_TOKENS = 4
"""Tokens of a run whose time can be measured: a shorter one would measure the round trip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What the last round asked for, cost and yielded. A round is a verification, a plain run, or the plain run that
    follows an empty proposal. Before the first round all counts and times are 0."""

    now_s: float
    """Time of the result, on a clock that only goes forward."""
    num_output_tokens: int = 0
    """Output tokens committed so far."""
    num_remaining_tokens: int
    """Output tokens still allowed."""
    num_requested_tokens: int = 0
    """Draft tokens asked of the drafter; 0: a plain run."""
    num_draft_tokens: int = 0
    """Draft tokens verified: all nodes of a tree; 0 if the proposal was empty."""
    draft_depth: int = 0
    """A tree's longest path; 0: the draft was a chain."""
    num_accepted_tokens: int = 0
    num_plain_tokens: int = 0
    """Tokens decoded without a draft."""
    num_committed_tokens: int = 0
    """All tokens of the round."""
    num_forced_tokens: int = 0
    """Committed tokens that a grammar drafted, as it does however the rest is decoded."""
    propose_s: float = 0.0
    """What the round waited for its proposal."""
    draft_compute_s: float = 0.0
    """Compute time of the proposal that the drafter reports; 0: none reported."""
    target_s: float = 0.0
    """Time from the command to the round's last verdict; 0: not known."""
    prefill_s: float = 0.0
    """Time that prefills of any sequences added to the target's steps during the round."""
    plain_token_s: float = 0.0
    """Time of a plain run's token after the first, prefills taken off; 0: not known."""
    draft_problem: str = ""
    """Why the proposal is empty, when something went wrong."""
    spared_drafter: bool = False
    """Whether a lookup drafted in the drafter's place, so that the round says nothing of the drafter."""
    drafter_absence: str = ""
    """Why no proposal can be had now; empty if one can."""
    is_drafter_saturated: bool = False
    """Whether that is because all places of the draft pool are taken."""
    stand_in: str = ""
    """The lookup that drafts alone from now on, as the drafter behind it cannot; empty: there is none."""
    replica_id: str = ""
    """Target replica that holds the sequence; empty before the first command, and while it is lost."""
    step_table: StepTable = field(default_factory=StepTable)
    """The step costs that the replica published last."""
    num_steps: int = 0
    """Steps that the replica took during the round; 0: not known."""
    num_other_sequences: int = 0
    """Sequences of other orchestrators there."""

    @property
    def is_empty_proposal(self) -> bool:
        """Whether the drafter was asked and had nothing."""
        return self.num_requested_tokens > 0 and not self.num_draft_tokens

    @property
    def is_measurable_run(self) -> bool:
        """Whether the time of a token is known well enough."""
        return self.plain_token_s > 0 and self.num_counted_tokens >= MEASURABLE_TOKENS

    @property
    def num_counted_tokens(self) -> int:
        """Tokens of the round that say how fast it was."""
        return self.num_committed_tokens - self.num_forced_tokens

    def elapsed_s(self, last_s: float) -> float:
        """Time from the result before, at last_s, to this one, prefills taken off; 0: not known."""
        waited_s, prefill_s = self.propose_s + self.target_s, self.prefill_s
        if not self.target_s:
            return 0.0
        handling_s = max(0.0, self.now_s - last_s - waited_s)
        if handling_s > waited_s:
            # A client that does not read. What does not count held its share of the prefills.
            prefill_s, handling_s = prefill_s * waited_s / (waited_s + handling_s), 0.0
        return max(0.0, waited_s + handling_s - prefill_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the next round does, and why."""

    num_draft_tokens: int
    """Tokens to ask of the drafter: the depth where it answers with a tree; 0: the round is a plain run."""
    num_decode_tokens: int
    """Length of the plain run, also of the one that follows an empty proposal."""
    reason: Reason
    details: str = ""
    """A more exact sentence for people than the reason's own; empty: there is none."""
