"""What the answers of the stream came to, minute by minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, answered by both stacks."""

    minute: float
    """Since the stream began."""
    turn: int
    """How often its kind was there before."""
    kind: str
    is_paused: bool
    """Whether the trainer stood still while the stack that learns answered."""
    num_tokens: tuple[int, int]
    """Tokens of the static stack and of the one that learns; all pairs here are so."""
    num_rounds: tuple[int, int]
    num_accepted: tuple[int, int]
    num_drafted: tuple[int, int]
    seconds: tuple[float, float]
    """Time from the first tokens to the last."""
    differs: bool
    version: int


def acceptance_length(asked: Iterable[Asked], arm: int) -> float:
    """Tokens a round, the target's own included; 0 without a round."""
    rounds = accepted = 0
    for each in asked:
        rounds += each.num_rounds[arm]
        accepted += each.num_accepted[arm]
    return (rounds + accepted) / rounds if rounds else 0.0


def drafted_ratio(asked: Sequence[Asked]) -> float:
    """Draft tokens a round of the stack that learns over the static one's; 0 without a draft. What is accepted for
    longer is drafted further, and a round takes longer."""
    lengths = []
    for arm in (0, 1):
        rounds = sum(each.num_rounds[arm] for each in asked)
        lengths.append(sum(each.num_drafted[arm] for each in asked) / rounds if rounds else 0.0)
    return lengths[1] / lengths[0] if lengths[0] else 0.0


def rate_ratio(asked: Sequence[Asked]) -> float:
    """Tokens a second of the stack that learns over the static one's; 0 without an answer."""
    rates = []
    for arm in (0, 1):
        seconds = sum(each.seconds[arm] for each in asked)
        rates.append(sum(each.num_tokens[arm] for each in asked) / seconds if seconds else 0.0)
    return rates[1] / rates[0] if rates[0] else 0.0
