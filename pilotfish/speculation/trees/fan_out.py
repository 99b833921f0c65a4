"""Drafting ahead: for which outcomes of a verification to draft before it ends. Torch-free and pure.

An outcome of verifying drafts d_1..d_K is how many of them are accepted and which token the target adds: a
recovered one where a draft was rejected, the bonus where none was. The likeliest outcomes get a draft each
(Saguaro, 2603.03251, section 4). The choice looks at the acceptance so far and at what the drafter thought of
the verified positions, never at the drafts that are prepared: whether one is used depends on the outcome alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from pilotfish.speculation.trees.growth import Candidate

MAX_RIVALS = 4
"""Tokens considered at one position: a fifth is the target's choice in few rounds."""
MAX_STEP_ROWS = 64
"""Rows of a draft step that cost little more than one: reading the weights takes most of its time."""


@dataclass(frozen=True, slots=True)
class AssumedOutcome:
    """A way in which a verification may end."""

    num_accepted_tokens: int
    token_id: int
    """The target's own, after the accepted ones."""


def rivals(candidates: Sequence[Candidate], draft_token_id: int | None) -> list[Candidate]:
    """What the target may say where it does not say draft_token_id, with log-probabilities given that it does not.

    candidates: one position's, the likeliest first. draft_token_id: None for the bonus, where there is no draft.
    """
    others = [candidate for candidate in candidates if candidate.token_id != draft_token_id][:MAX_RIVALS]
    if draft_token_id is None:
        return others
    drafted = sum(math.exp(candidate.log_prob) for candidate in candidates if candidate.token_id == draft_token_id)
    # A drafter that is sure of its draft leaves others nothing to share: what matters is their proportion.
    log_rest = math.log(max(1.0 - drafted, sum(math.exp(candidate.log_prob) for candidate in others), 1e-9))
    return [Candidate(candidate.token_id, candidate.log_prob - log_rest) for candidate in others]


def likeliest_outcomes(
    acceptance: Sequence[float], candidates: Sequence[Sequence[Candidate]], max_outcomes: int
) -> list[AssumedOutcome]:
    """The likeliest outcomes, at most max_outcomes, the likeliest first.

    acceptance: element i is the probability that draft i is accepted if all before it are; at least one element,
    the last one stands for further drafts. candidates: K + 1 lists, `rivals` of each position.
    """
    num_drafts = len(candidates) - 1
    conditional = [*acceptance[:num_drafts], *[acceptance[-1]] * (num_drafts - len(acceptance))]
    reached = [1.0, *accumulate(conditional, mul)]
    ends_at = [*(at * (1 - next_) for at, next_ in zip(reached, conditional, strict=False)), reached[-1]]
    ranked = sorted(
        (
            (ends_at[position] * math.exp(candidate.log_prob), -position, -rank, candidate.token_id)
            for position, at_position in enumerate(candidates)
            for rank, candidate in enumerate(at_position)
        ),
        reverse=True,
    )
    return [AssumedOutcome(-position, token_id) for _, position, _, token_id in ranked[: max(0, max_outcomes)]]


def split_budget(max_tokens: int, num_draft_tokens: int) -> tuple[int, int]:
    """How many outcomes get a draft, and of how many tokens: drafts are whole, as far as the budget lasts."""
    depth = min(max_tokens, num_draft_tokens)
    return max_tokens // depth, depth
