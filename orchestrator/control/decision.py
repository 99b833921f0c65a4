"""What a controller is told after each round, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.control.reasons import Reason
from pilotfish.types import LoadReport

_MAX_HANDLING = 1.0
"""Of the rest of a round: what takes longer between two of them is a client that does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the last round asked for, cost and yielded; all but the time zero before the first."""

    now_s: float = 0.0
    """On a clock that only goes forward."""
    num_output_tokens: int = 0
    """Committed so far."""
    num_remaining_tokens: int
    """Output tokens still allowed."""
    num_requested_tokens: int = 0
    """Draft tokens asked of the drafter."""
    num_draft_tokens: int = 0
    """Draft tokens verified."""
    num_accepted_tokens: int = 0
    draft_depth: int = 0
    """Of a tree: those on its longest path. 0: they were a chain."""
    num_decoded_tokens: int = 0
    """Tokens of the last round that were decoded plainly."""
    num_committed_tokens: int = 0
    """All tokens of the last round."""
    propose_s: float = 0.0
    """What the round waited for its proposal."""
    propose_compute_s: float = 0.0
    """Time that the drafter says it took; 0: it says nothing."""
    step_s: float = 0.0
    """Time of the verification or of the whole decode run; 0 where it was not measured."""
    token_s: float = 0.0
    """Of a run: time of a token after the first, which may have waited for a step under way; 0: not measured."""
    prefill_s: float = 0.0
    """By how much prefills, of any sequences, made the replica's steps longer, on average while each of the tokens of a
    run was decoded that token_s tells of;"""
    round_prefill_s: float = 0.0
    """and from the verdict before the round to its own."""
    draft_problem: str = ""
    """Why the last proposal was empty, when something went wrong."""
    is_draft_deferred: bool = False
    """There was no proposal because the drafter was not asked yet."""
    drafter_absence: str = ""
    """Why no proposal can be had now; empty if one can."""
    is_drafter_saturated: bool = False
    """Whether the draft replica has more to do than it can."""
    replica_id: str = ""
    """Target replica that holds the sequence; empty before the first command, and while it is lost."""
    target_load: LoadReport | None = None
    """As that replica told last."""
    num_other_sequences: int = 0
    """Sequences of other orchestrators there."""

    def round_s(self, last_arrival_s: float) -> float:
        """From verdict to verdict, as a token of a plain run is measured: what is done between them counts, but for
        prefills.

        last_arrival_s: when what came before this round's verdict did.
        """
        elapsed_s, prefill_s = self.propose_s + self.step_s, self.round_prefill_s
        handling_s = max(0.0, self.now_s - last_arrival_s - elapsed_s)
        if handling_s <= _MAX_HANDLING * elapsed_s:
            return elapsed_s + handling_s - prefill_s
        # What does not count held its share of the prefills.
        return elapsed_s - prefill_s * elapsed_s / (elapsed_s + handling_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the next round does, and why."""

    num_draft_tokens: int
    """To ask of the drafter, one after another: the depth where it answers with a tree; 0 asks for none."""
    num_decode_tokens: int
    """To decode plainly where there is no draft."""
    reason: Reason
    min_accepted_tokens: float = 0.0
    """A draft that promises less is not worth the round trip of a verification."""
    details: str = ""
    """To tell people instead of the reason's own sentence."""
