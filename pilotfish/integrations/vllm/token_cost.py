"""What each draft token adds to a step of one size of batch: a line through what steps took, by the tokens verified."""

from __future__ import annotations

_FADING = 1 - 1 / 128
"""Of a step, with every later one."""
_PRIOR = 64.0
"""What another size of batch tells counts as much as four steps that are four tokens off."""


class TokenCost:
    """Weighted least squares. Pure."""

    def __init__(self) -> None:
        self._weight = self._mean_tokens = self._mean_ratio = self._covariance = self._variance = 0.0

    @property
    def num_steps(self) -> float:
        """That it stands on, those of long ago counting less."""
        return self._weight

    def add(self, num_draft_tokens: int, ratio: float) -> None:
        """A step that verified so many draft tokens, over all rows, took `ratio` of a plain one."""
        self._weight = self._weight * _FADING + 1
        off_tokens, off_ratio = num_draft_tokens - self._mean_tokens, ratio - self._mean_ratio
        self._mean_tokens += off_tokens / self._weight
        self._mean_ratio += off_ratio / self._weight
        # Welford's, with fading weights.
        self._variance = self._variance * _FADING + off_tokens * (num_draft_tokens - self._mean_tokens)
        self._covariance = self._covariance * _FADING + off_tokens * (ratio - self._mean_ratio)

    def per_token(self, prior: float) -> float:
        """Plain steps that a draft token adds, at least 0. prior: what is believed without any step."""
        return max(0.0, (self._covariance + _PRIOR * prior) / (self._variance + _PRIOR))
