"""A drafter's acceptance by minute and version of its weights, for people: one that learns changes under way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_PERIOD_S = 60.0
_MAX_POINTS = 120
"""Two hours of use: minutes in which nothing was drafted have none."""
_RECENT_MINUTES = 2


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
        """A round verified drafts; returns whether their version is new: not one of this minute or the last one that
        has points, because the replicas of a pool do not take up a version at the same moment."""
        minute, recent = now_s // _PERIOD_S, self._recent()
        point = recent.get(version)
        if point is None or point.begin_s // _PERIOD_S < minute:
            point = VersionPoint(now_s, version)
            self.points.append(point)
        point.num_rounds += 1
        point.num_accepted_tokens += num_accepted_tokens
        return bool(recent) and version not in recent

    def _recent(self) -> dict[int, VersionPoint]:
        """The newest point of each version, within the last two minutes that have any."""
        found: dict[int, VersionPoint] = {}
        minutes: set[float] = set()
        for point in reversed(self.points):
            minutes.add(point.begin_s // _PERIOD_S)
            if len(minutes) > _RECENT_MINUTES:
                break
            found.setdefault(point.version, point)
        return found

    def acceptance_lengths(self, num_versions: int) -> dict[int, float]:
        """Acceptance length of each of the newest num_versions versions that are remembered."""
        sums: dict[int, VersionPoint] = {}
        for point in self.points:
            total = sums.setdefault(point.version, VersionPoint(0.0, point.version))
            total.num_rounds += point.num_rounds
            total.num_accepted_tokens += point.num_accepted_tokens
        return {version: sums[version].acceptance_length for version in sorted(sums)[-num_versions:]}
