"""A drafter's acceptance by minute and version of its weights, for people: one that learns changes under way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_PERIOD_S = 60.0
_MAX_POINTS = 120
"""Two hours of use: minutes in which nothing was drafted have none."""


@dataclass(slots=True)
class VersionPoint:
    """The rounds of one minute that verified drafts of one version."""

    begin_s: float
    """Time of the first one, on the clock that all rounds are timed by."""
    version: int
    """0: the configured weights, or a drafter that does not learn."""
    num_rounds: int = 0
    num_accepted_tokens: int = 0

    @property
    def acceptance_length(self) -> float:
        """Output tokens a round, the target's own included."""
        return 1 + self.num_accepted_tokens / self.num_rounds


class VersionHistory:
    """Pure: time is an argument."""

    def __init__(self) -> None:
        self.points: deque[VersionPoint] = deque(maxlen=_MAX_POINTS)
        """Oldest first."""

    def add(self, version: int, num_accepted_tokens: int, now_s: float) -> bool:
        """A round verified drafts; returns whether they are of another version than those before."""
        last = self.points[-1] if self.points else None
        if last is None or last.version != version or now_s // _PERIOD_S > last.begin_s // _PERIOD_S:
            self.points.append(VersionPoint(now_s, version))
        self.points[-1].num_rounds += 1
        self.points[-1].num_accepted_tokens += num_accepted_tokens
        return last is not None and last.version != version

    def acceptance_lengths(self, num_versions: int) -> dict[int, float]:
        """By version, the newest num_versions of those that are remembered."""
        sums: dict[int, VersionPoint] = {}
        for point in self.points:
            total = sums.setdefault(point.version, VersionPoint(0.0, point.version))
            total.num_rounds += point.num_rounds
            total.num_accepted_tokens += point.num_accepted_tokens
        return {version: sums[version].acceptance_length for version in sorted(sums)[-num_versions:]}
