"""How sequences are drafted for: acceptance, draft lengths, drafting ahead, and where the drafters are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pilotfish.errors import ConfigError
from pilotfish.speculation.cost import expected_tokens_by_position
from pilotfish.speculation.trees.fan_out import MAX_RIVALS, MAX_STEP_ROWS

MAX_DRAFT_TOKENS = 32
"""The limit of engine.max_draft_tokens."""
_RIVAL_SHARES = tuple(0.5 ** (rank + 1) for rank in range(MAX_RIVALS))
"""Where a draft is rejected, how often each of the drafter's next best tokens is the target's: the best in half of the
cases, the one after it in half of the others."""


class Placement(StrEnum):
    """Where drafters run."""

    SEPARATE = "separate"
    """Drafters on replicas of their own: one half of a batch can be drafted for while the other is verified."""
    COLOCATED = "colocated"
    """Drafters on the target's own processors: in turns with it, but without a network between them."""
    NONE = "none"
    """Nobody drafts: every GPU serves the target."""


@dataclass(frozen=True, kw_only=True)
class DraftAssumptions:
    """How one sequence is drafted for; the same for all. Raises ConfigError for what makes no sense."""

    acceptance: tuple[float, ...] = (0.8,)
    """Probability that a draft token is accepted, given that those before it were, by position. Beyond its end
    the last value holds."""
    max_draft_tokens: int = 8
    """The largest K."""
    ahead_tokens: int = 0
    """The most tokens drafted ahead in a round, while the target verifies; 0: no drafting ahead."""
    acceptance_ahead: tuple[float, ...] = ()
    """`acceptance` of drafts that were made ahead; empty: it is no other."""
    is_head: bool = False
    """Whether the drafter reads features. Then it takes two steps before what is drafted ahead grows (it reads the
    newest features, then its draft), where a model takes one, and drafts ahead only while nobody waits for a draft."""

    def __post_init__(self) -> None:
        if not self.acceptance:
            raise ConfigError("acceptance must hold at least one probability")
        for rate in (*self.acceptance, *self.acceptance_ahead):
            if not 0 <= rate <= 1:
                raise ConfigError(
                    f"acceptance {rate:g} is no probability: it must be between 0 and 1 (0.8 for eight of ten tokens)"
                )
        if self.ahead_tokens < 0:
            raise ConfigError(f"the tokens drafted ahead must be at least 0, not {self.ahead_tokens}")
        if not 0 <= self.max_draft_tokens <= MAX_DRAFT_TOKENS:
            raise ConfigError(f"draft tokens must be between 0 and {MAX_DRAFT_TOKENS}, not {self.max_draft_tokens}")

    def expected_tokens(self, num_draft_tokens: int, num_outcomes: int = 0) -> float:
        """Output tokens of a round, the target's own among them. num_outcomes: that get a draft ahead."""
        share = self.ahead_share(num_draft_tokens, num_outcomes)
        asked, ahead = (
            expected_tokens_by_position(rates, num_draft_tokens) for rates in (self.acceptance, self._ahead)
        )
        return (1 - share) * asked + share * ahead

    def num_outcomes_ahead(self, num_draft_tokens: int, batch: int) -> int:
        """Outcomes of a round that get a draft ahead: fewer where many sequences share the drafter's steps."""
        share = MAX_STEP_ROWS * num_draft_tokens // max(1, batch)
        return min(self.ahead_tokens, share) // num_draft_tokens

    def ahead_share(self, num_draft_tokens: int, num_outcomes: int) -> float:
        """Share of rounds whose draft was made ahead, as the round before ended in one of num_outcomes outcomes."""
        if not num_outcomes:
            return 0.0
        asked = self._hit_rate(self.acceptance, num_draft_tokens, num_outcomes)
        ahead = self._hit_rate(self._ahead, num_draft_tokens, num_outcomes)
        return asked / (1 - ahead + asked)

    @property
    def _ahead(self) -> tuple[float, ...]:
        return self.acceptance_ahead or self.acceptance

    def _hit_rate(self, acceptance: tuple[float, ...], num_draft_tokens: int, num_outcomes: int) -> float:
        """Share of the rounds with drafts of this acceptance that end in one of the num_outcomes likeliest outcomes.

        An outcome (orchestrator/rounds/drafter_clients/predraft.py): how many drafts are accepted, and which of the
        drafter's next best tokens the target says then.
        """
        outcomes, reached = [], 1.0
        for position in range(num_draft_tokens):
            rate = _rate(acceptance, position)
            outcomes += [reached * (1 - rate) * share for share in _RIVAL_SHARES]
            reached *= rate
        # All were accepted: the bonus is as likely the drafter's own next token as a draft there would be accepted.
        rate = _rate(self._ahead, num_draft_tokens)
        outcomes += [reached * rate, *(reached * (1 - rate) * share for share in _RIVAL_SHARES[:-1])]
        return sum(sorted(outcomes, reverse=True)[:num_outcomes])


def _rate(acceptance: tuple[float, ...], position: int) -> float:
    return acceptance[min(position, len(acceptance) - 1)]


PLAIN = DraftAssumptions(max_draft_tokens=0)
"""No speculation."""
