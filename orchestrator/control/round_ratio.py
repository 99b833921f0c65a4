"""By what rounds of each draft length take longer than is expected of them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping

from orchestrator.control.window import ClippedAverage

_MIN_SAMPLES = 12
"""Rounds of a draft length before they are believed: the first under a new load stand beside prefills."""
_MIN_HOPE_SAMPLES = 6
"""Rounds of another try before what they take is believed: one that waited would end it."""
_COMMON_WEIGHT = 0.05
"""Of the latest round in what is common to all lengths;"""
_OWN_WEIGHT = 0.015
"""and in what is its length's own. Some rounds wait for a draft and for other sequences and some do not, so that single
ones scatter by a third."""
_NUM_ERRORS = 2.0
"""Standard errors by which the rounds of a draft length may differ from those of all lengths by chance. Draft lengths
side by side differ by a few per cent in what they yield: what is chance would decide between them."""
_DOUBT = 0.5
"""Of the loss measured for a draft length, believed of those that were not: they get tried."""
_FIRST_AGE_ROUNDS = 64
_MAX_AGE_ROUNDS = 512
"""Of each sequence, after which a draft length that was not used is as good as its neighbours again. Doubled each time:
the first may have been measured in worse moments than those that came after them."""


class RoundRatio:
    """Learns the time of rounds over what was expected of them: a factor of all lengths and one of each length.

    The first follows how the machine does, and each length's own is measured against it: a bad moment of some length
    is one of all of them. A moment that begins or ends with the first rounds of a length is taken for its own, until
    it is forgotten.
    """

    def __init__(self) -> None:
        # No medians: with drafting ahead some rounds wait for a draft and others do not.
        self._common = ClippedAverage(weight=_COMMON_WEIGHT)
        self._own: dict[int, ClippedAverage] = defaultdict(lambda: ClippedAverage(weight=_OWN_WEIGHT))
        self._latest_rounds: dict[int, int] = {}
        """When each length learned last."""
        self._max_age_rounds: dict[int, int] = defaultdict(lambda: _FIRST_AGE_ROUNDS)

    @property
    def common(self) -> float | None:
        """The factor of all lengths; None before the first round."""
        return self._common.value

    @property
    def is_known(self) -> bool:
        """Whether a round was measured, if only one."""
        return self._common.value is not None

    @property
    def is_believed(self) -> bool:
        """Whether rounds of some length were measured often enough, and in this try."""
        return self._common.num_values >= _MIN_HOPE_SAMPLES and bool(self._measured)

    def add(self, ratio: float, num_draft_tokens: int, num_rounds: int, num_sequences: int) -> None:
        """A round took ratio of what was expected; it is one of num_rounds so far, of num_sequences."""
        own = self._own[num_draft_tokens]
        if own.num_values >= _MIN_SAMPLES and own.value:
            self._common.add(ratio / own.value)
        elif not self._measured:
            self._common.add(ratio)  # else a length that is only tried would be taken for a change of all
        own.add(ratio / (self._common.value or ratio))
        self._settle()
        self._latest_rounds[num_draft_tokens] = num_rounds
        self._forget_unused(num_rounds, num_sequences)

    def hope(self) -> None:
        """Another try: what rounds of all lengths take is forgotten, and half of how lengths differ. Which of them to
        try is known, so that the next loss is noticed in a few rounds; and one that had bad luck gets its turn."""
        self._common = ClippedAverage(weight=_COMMON_WEIGHT)
        for own in self._own.values():
            if own.value:
                own.scale((1 + own.value) / (2 * own.value))

    def factors(self, max_draft_tokens: int) -> list[float] | None:
        """Element K: time of a round of K draft tokens over what is expected of it, K up to max_draft_tokens; None as
        long as too little is known.

        Of a length that was not measured half of the loss is believed that the nearest one has which was.
        """
        # Fewer were measured only since another try began.
        common = self._common.value if self._common.num_values >= _MIN_HOPE_SAMPLES else None
        measured = {k: (common or 1.0) * (1 + _certain_excess(own)) for k, own in self._measured.items()}
        if not measured:
            return None
        return [_expected_factor(measured, k) for k in range(max_draft_tokens + 1)]

    @property
    def _measured(self) -> dict[int, ClippedAverage]:
        return {k: own for k, own in self._own.items() if own.num_values >= _MIN_SAMPLES}

    def _settle(self) -> None:
        """Only the product of the two factors is measured: lengths' own are held to a mean of 1, or they would wander
        off, in opposite ways, and what a lone length learned of the machine would stay its own."""
        owns = [own.value for own in self._measured.values() if own.value is not None]
        if not owns:
            return
        mean = statistics.fmean(owns)
        self._common.scale(mean)
        for own in self._own.values():
            own.scale(1 / mean)

    def _forget_unused(self, num_rounds: int, num_sequences: int) -> None:
        for num_draft_tokens, latest in list(self._latest_rounds.items()):
            max_age_rounds = self._max_age_rounds[num_draft_tokens]
            if latest < num_rounds - max_age_rounds * num_sequences:
                del self._own[num_draft_tokens], self._latest_rounds[num_draft_tokens]
                self._max_age_rounds[num_draft_tokens] = min(2 * max_age_rounds, _MAX_AGE_ROUNDS)


def _certain_excess(own: ClippedAverage) -> float:
    """By how much rounds of a length differ from those of all, as far as that is no chance."""
    excess = (own.value or 1.0) - 1
    return math.copysign(max(0.0, abs(excess) - _NUM_ERRORS * own.standard_error), excess)


def _expected_factor(measured: Mapping[int, float], num_draft_tokens: int) -> float:
    nearest = min(measured, key=lambda k: abs(k - num_draft_tokens))
    factor = measured[nearest]
    return 1 + _DOUBT * (factor - 1) if factor > 1 and nearest != num_draft_tokens else factor
