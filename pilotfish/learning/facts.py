"""What is known of a version of a drafter, and of how versions came to serve."""

from __future__ import annotations

import msgspec


class Score(msgspec.Struct, frozen=True):
    """Tokens a round on texts of a kind that neither version was trained on, the bonus included."""

    num_texts: int
    before: float
    """Tokens a round with the version that served."""
    after: float
    """Tokens a round with the new version."""
    error: float
    """Twice the standard error of the difference between the two."""


class VersionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What version.json says."""

    parent: int
    """The version that it was trained on from; 0: the configured head."""
    created_at: float
    """Unix time in seconds."""
    num_texts: int = 0
    num_tokens: int = 0
    """Answer tokens learned from, of the traffic."""
    train_s: float = 0.0
    verdict: str = ""
    """Why it was promoted or not."""
    score: Score | None = None
    """Score over all texts."""
    kinds: dict[str, Score] = {}
    learned_from: tuple[str, ...] = ()
    """Digests of the requests, for `pilotfish drafter forget`."""


class Change(msgspec.Struct, frozen=True, rename={"from_version": "from", "to_version": "to"}):
    """A promotion or a roll-back."""

    at: float
    """Unix time in seconds."""
    from_version: int
    to_version: int
    reason: str
    by_hand: bool = False
