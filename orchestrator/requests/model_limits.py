"""What requests may ask of the served model, and what they get that do not ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotfish.drafter_registry import LOOKUPS


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """The limits that the served model sets to requests."""

    vocab_size: int
    max_context_tokens: int
    max_draft_tokens: int
    """The most draft tokens in one round."""
    default_draft_tokens: int
    """Draft tokens in one round where the request does not say."""
    measured_draft_tokens: int
    """The most draft tokens in one round with the draft pool in mode `auto`, whose drafts are measured."""
    max_draft_depths: Mapping[str, int] = field(default_factory=dict)
    """The most draft tokens in a row that each proposer can make; one that is not here has no bound."""
    eos_token_ids: frozenset[int]
    default_proposer: str = "draft"
    """What `auto` means, the drafter in the target included."""
    allow_lossy: bool = False
    max_listed_tokens: int = 1024
    """Entries of logit_bias, stop_token_ids and allowed_token_ids, each, at most."""

    def draft_tokens_by_default(self, mode: str, proposer: str) -> int:
        """Draft tokens in one round of a request that does not say."""
        if proposer in LOOKUPS:
            return self.max_draft_tokens  # a lookup's match says how far to go
        is_measured = mode == "auto" and proposer == "draft"
        return min(self.measured_draft_tokens if is_measured else self.default_draft_tokens, self.max_draft_tokens)
