"""What the next tokens cost on one target replica, and which draft length is best for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pilotfish.speculation.cost import best_gain


@dataclass(frozen=True, slots=True)
class Asking:
    """What is expected of a drafter that is asked."""

    probabilities: Sequence[float]
    """Of each draft token to be accepted, given that those before it were."""
    answered_share: float = 1.0
    """Of what it is asked: a lookup may find nothing."""
    run_tokens: float = 1.0
    """Decoded at least before it is asked again where it has no answer."""


@dataclass(frozen=True)
class Prices:
    """What the next tokens cost if all sequences that decode on the replica do the same, and have answers to the same
    share of what they ask. Seconds."""

    plain_s: float
    """One plain decode step."""
    rounds_s: Sequence[float]
    """Element K: proposing and verifying K tokens; element 0 is plain_s."""
    ideal_s: Callable[[int], float]
    """Of K tokens: if verifications waited for nothing but their step and proposals took what they take a lone
    sequence."""
    steps_s: Sequence[float]
    """Element K: a token of a plain run beside rounds of K tokens."""
    vain_s: float
    """What is lost where the drafter has no answer, besides;"""
    ideal_vain_s: float
    """at best; and"""
    vain_run_tokens: float
    """how far sequences decode plainly, then, before it is asked again."""

    def best(
        self, asking: Asking, preferred: int = 0, margin: float = 0.0, *, is_ideal: bool = False
    ) -> tuple[int, float]:
        """The best draft length and its speed over that of plain decoding, as best_gain says.

        is_ideal: at ideal prices.
        """
        rounds_s = self.ideal_rounds_s if is_ideal else self.rounds_s
        vain_s = self.ideal_vain_s if is_ideal else self.vain_s
        if asking.answered_share >= 1:
            return best_gain(asking.probabilities, self.plain_s, rounds_s, preferred, margin)
        num_vain_asks = 1 / asking.answered_share - 1  # for one that is answered
        run_tokens = max(self.vain_run_tokens, asking.run_tokens)
        between_s = [num_vain_asks * (run_tokens * step_s + vain_s) for step_s in self.steps_s]
        between_tokens = num_vain_asks * run_tokens
        return best_gain(asking.probabilities, self.plain_s, rounds_s, preferred, margin, between_tokens, between_s)

    @cached_property
    def ideal_rounds_s(self) -> Sequence[float]:
        """As rounds_s, but ideal ones: only looked at where speculation is off, and decisions are rare."""
        ideal_s = [min(round_s, self.ideal_s(k)) for k, round_s in enumerate(self.rounds_s[1:], start=1)]
        return [self.plain_s, *ideal_s]
