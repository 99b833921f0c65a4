"""How often a drafter has an answer to what it is asked: a lookup may find nothing."""

from __future__ import annotations

from orchestrator.control.window import RunningAverage
from pilotfish.speculation.statistics import DecayedAcceptance

_PRIOR_QUESTIONS, _MEMORY_QUESTIONS = 16, 64
"""At first a drafter is believed to have answers, as if it had had so many: those that have none come in a row. What
is known of all requests is worth so many of the latest questions at most."""
_OWN_HALF_LIFE, _SHARED_QUESTIONS = 32.0, 8.0
"""Of a request, for which what all requests know counts as much as so many questions of its own: texts differ."""
_LEAST = 0.01


class SharedAnswerShare:
    """Of all requests."""

    def __init__(self) -> None:
        self._share = RunningAverage(1.0, 1 / _MEMORY_QUESTIONS, _PRIOR_QUESTIONS)

    @property
    def value(self) -> float:
        """Of the next questions, the part that has an answer: above 0, and 1 as long as all had one."""
        return max(_LEAST, self._share.value or 0.0)

    def add(self, *, has_answer: bool) -> None:
        self._share.add(float(has_answer))


class AnswerShare:
    """Of one request, which begins with what is known of all."""

    def __init__(self, shared: SharedAnswerShare) -> None:
        self._shared = shared
        # A question is a draft of one token, which is accepted if there is an answer.
        self._own = DecayedAcceptance(half_life_rounds=_OWN_HALF_LIFE, prior_weight=_SHARED_QUESTIONS)

    @property
    def value(self) -> float:
        """As SharedAnswerShare's."""
        return max(_LEAST, self._own.probabilities(1, (self._shared.value,))[0])

    def add(self, *, has_answer: bool) -> None:
        self._own.add(1, int(has_answer))
