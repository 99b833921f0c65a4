"""When speculation pays: expected output tokens over measured time. Torch-free.

Leviathan et al. 2211.17192, equation 1 and theorem 3.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def best_num_draft_tokens(
    acceptance_per_position: Sequence[float],
    max_draft_tokens: int,
    *,
    verify_time: Callable[[int], float],
    draft_time: Callable[[int], float],
    decode_time: float,
) -> int:
    """The K in 0..max_draft_tokens with the most expected output tokens per unit of time; 0 is plain decoding.

    verify_time and draft_time: what verifying and drafting K tokens take, in decode_time's unit.
    The smallest of equals wins.
    """
    best, best_rate = 0, 1 / decode_time
    for num_draft_tokens in range(1, max_draft_tokens + 1):
        duration = verify_time(num_draft_tokens) + draft_time(num_draft_tokens)
        rate = expected_tokens_by_position(acceptance_per_position, num_draft_tokens) / duration
        if rate > best_rate:
            best, best_rate = num_draft_tokens, rate
    return best
