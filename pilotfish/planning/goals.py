"""What users are promised, and whether a simulated fleet keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.errors import ConfigError
from pilotfish.planning.fleet import Outcome, quantile


@dataclass(frozen=True, kw_only=True)
class Goals:
    """Held for a share of all requests."""

    first_token_s: float = 1.0
    """Time to first token, waiting in line included. Default: what people take for an answer at once."""
    token_s: float = 0.05
    """From token to token, on average over an answer. Default: 20 tokens/s, twice as fast as people read."""
    share: float = 0.95
    """Of the requests, for each of the two."""

    def __post_init__(self) -> None:
        if self.first_token_s <= 0 or self.token_s <= 0:
            raise ConfigError("a latency goal must be above 0")
        if not 0 < self.share < 1:
            raise ConfigError(f"the share of requests that goals hold for must be between 0 and 1, not {self.share:g}")

    def are_met(self, outcome: Outcome) -> bool:
        return (
            quantile(outcome.first_token_s, self.share) <= self.first_token_s
            and quantile(outcome.token_s, self.share) <= self.token_s
        )

    def __str__(self) -> str:
        first_ms, token_ms = self.first_token_s * 1e3, self.token_s * 1e3
        return f"first token within {first_ms:g} ms and {token_ms:g} ms a token for {self.share:.0%} of the requests"
