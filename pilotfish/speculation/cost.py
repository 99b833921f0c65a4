"""When speculation pays: expected output tokens over measured time. Torch-free.

Leviathan et al. 2211.17192, equation 1 and theorem 3.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul


def expected_tokens(acceptance_rate: float, num_draft_tokens: int) -> float:
    """Output tokens of a round of K drafts, each accepted with the same probability: (1 - a^(K+1)) / (1 - a).

    The bonus or recovered token is among them.
    """
    if acceptance_rate == 1:
        return num_draft_tokens + 1.0
    return (1 - acceptance_rate ** (num_draft_tokens + 1)) / (1 - acceptance_rate)


def expected_tokens_by_position(acceptance_per_position: Sequence[float], num_draft_tokens: int) -> float:
    """Output tokens of a round: 1 + sum over k <= K of Pr(first k accepted).

    acceptance_per_position[i]: probability that draft i is accepted, given that all before it were.
    Beyond its end the last value holds; with no value, no draft is accepted.
    """
    known = list(acceptance_per_position[:num_draft_tokens])
    known += known[-1:] * (num_draft_tokens - len(known))
    first_k_accepted: list[float] = list(accumulate(known, mul))
    return 1 + sum(first_k_accepted)


def speedup(acceptance_rate: float, num_draft_tokens: int, cost_ratio: float) -> float:
    """Over plain decoding; cost_ratio: one draft step over one verification step."""
    return expected_tokens(acceptance_rate, num_draft_tokens) / (num_draft_tokens * cost_ratio + 1)


def best_gain(probabilities: Sequence[float], plain_s: float, rounds_s: Sequence[float]) -> tuple[int, float]:
    """The K from 1 on with the most expected output tokens per second, and its speed over that of plain decoding.

    probabilities: of each draft token, given that those before it were accepted. rounds_s: element K is a round of K.
    (0, 1.0) where there is nothing to choose.
    """
    best, best_rate = 0, 0.0
    reached = num_tokens = 1.0
    for num_draft_tokens, probability in enumerate(probabilities, start=1):
        reached *= probability
        num_tokens += reached
        rate = num_tokens / rounds_s[num_draft_tokens]
        if rate > best_rate:
            best, best_rate = num_draft_tokens, rate
    return (best, best_rate * plain_s) if best else (0, 1.0)
