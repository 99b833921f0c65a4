"""How sequences are drafted for: acceptance, draft lengths, drafting ahead, and where the drafters are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pilotfish.errors import ConfigError
from pilotfish.speculation.cost import expected_tokens_by_position
from pilotfish.speculation.fan_out import MAX_RIVALS, MAX_STEP_ROWS


class Placement(StrEnum):
    """Where drafters run."""

    SEPARATE = "separate"
    """On replicas of their own, beside those of the target: drafts of some overlap with verifications of others."""
    COLOCATED = "colocated"
    """On the target's own GPUs: in turns with it, but without a network between them."""
    NONE = "none"
    """Nobody drafts: every GPU serves the target."""


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How one sequence is drafted for; the same for all."""

    acceptance: tuple[float, ...] = (0.8,)
    """Probability that a draft token is accepted, given that those before it were, by position. Beyond its end
    the last value holds."""
    max_draft_tokens: int = 8
    """K at most."""
    fixed_draft_tokens: int | None = None
    """K whatever the batch, as without a controller; None: by the batch."""
    per_batch_size: tuple[tuple[int, int, int], ...] = ()
    """(first batch, last batch, most draft tokens), vLLM's num_speculative_tokens_per_batch_size."""
    ahead_tokens: int = 0
    """Drafted ahead in a round at most, while the target verifies; 0: no drafting ahead."""
    rival_acceptance: float = 0.5
    """Where a draft is rejected, the probability that the drafter's next best token is the target's; of the one
    after it, if that was not; and so on. Only drafting ahead foresees by it."""

    def __post_init__(self) -> None:
        if not self.acceptance:
            raise ConfigError("acceptance must hold at least one probability")
        for rate in self.acceptance:
            if not 0 <= rate <= 1:
                raise ConfigError(
                    f"acceptance {rate:g} is no probability: it must be between 0 and 1 (0.8 for eight of ten tokens)"
                )
        if not 0 <= self.rival_acceptance <= 1:
            raise ConfigError(f"the acceptance of rivals must be between 0 and 1, not {self.rival_acceptance:g}")
        if self.ahead_tokens < 0:
            raise ConfigError(f"the tokens drafted ahead must be at least 0, not {self.ahead_tokens}")
        if not 0 <= self.max_draft_tokens <= MAX_DRAFT_TOKENS:
            raise ConfigError(f"draft tokens must be between 0 and {MAX_DRAFT_TOKENS}, not {self.max_draft_tokens}")
        for first, last, num_draft_tokens in self.per_batch_size:
            if not (1 <= first <= last and 0 <= num_draft_tokens <= MAX_DRAFT_TOKENS):
                raise ConfigError(
                    f"the range [{first}, {last}, {num_draft_tokens}] must be [first, last, K], K up to 32"
                )

    def expected_tokens(self, num_draft_tokens: int) -> float:
        """Output tokens of a round, the target's own among them."""
        return expected_tokens_by_position(self.acceptance, num_draft_tokens)

    def rates(self, num_positions: int) -> list[float]:
        """Acceptance of so many positions."""
        return [self.acceptance[min(position, len(self.acceptance) - 1)] for position in range(num_positions)]

    def num_outcomes_ahead(self, num_draft_tokens: int, batch: int) -> int:
        """Outcomes of a round that get a draft ahead: fewer where many sequences share the drafter's steps."""
        if not num_draft_tokens:
            return 0
        share = MAX_STEP_ROWS * num_draft_tokens // max(1, batch)
        return min(self.ahead_tokens, share) // num_draft_tokens

    def hit_rate(self, num_draft_tokens: int, num_outcomes: int) -> float:
        """Share of rounds that end in one of the num_outcomes likeliest outcomes.

        An outcome (orchestrator/drafting/speculation_cache.py): how many drafts are accepted, and which of the
        drafter's next best tokens the target says then.
        """
        rates = self.rates(num_draft_tokens + 1)
        outcomes, reached = [], 1.0
        for rate in rates[:-1]:
            outcomes += [reached * (1 - rate) * share for share in self._rival_shares]
            reached *= rate
        # All were accepted: the bonus is as likely the drafter's own next token as a draft there would be accepted.
        outcomes += [reached * rates[-1], *(reached * (1 - rates[-1]) * share for share in self._rival_shares[:-1])]
        return sum(sorted(outcomes, reverse=True)[:num_outcomes])

    @property
    def _rival_shares(self) -> list[float]:
        return [self.rival_acceptance * (1 - self.rival_acceptance) ** rank for rank in range(MAX_RIVALS)]


MAX_DRAFT_TOKENS = 32
"""As in engine.max_draft_tokens."""
PLAIN = Drafting(max_draft_tokens=0)
"""No speculation."""
