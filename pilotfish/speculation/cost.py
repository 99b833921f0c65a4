"""Expected output tokens of a round (Leviathan et al. 2211.17192, equation 1). Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul


def expected_tokens_by_position(acceptance_per_position: Sequence[float], num_draft_tokens: int) -> float:
    """Output tokens of a round: 1 + sum over k <= K of Pr(first k accepted).

    acceptance_per_position[i]: probability that draft i is accepted, given that all before it were.
    Beyond its end the last value holds; with no value, no draft is accepted.
    """
    known = list(acceptance_per_position[:num_draft_tokens])
    known += known[-1:] * (num_draft_tokens - len(known))
    first_k_accepted: list[float] = list(accumulate(known, mul))
    return 1 + sum(first_k_accepted)
