"""Is an answer right, by its reference? Pure.

As GSM8K is graded: where the reference is a number, by the last number of the answer. A few words are right wherever
the answer has them. Longer references are for people.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from decimal import Decimal

import msgspec

_RESULT_MARK = "####"
"""GSM8K's references have their result behind it."""
_NUMBER = re.compile(r"(?<![\w.])(?:(?<![)\]])-)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_NUMBER_REFERENCE = re.compile(r"(?:.*(?:=|\bis\b))?\W*\d", re.DOTALL)
"""A number, behind its name or not, and perhaps before its unit: no date and no title."""
_MAX_WORDS = 8


def is_right(answer: str, references: Sequence[str]) -> bool | None:
    """Whether any of the references says so; None: they grade nothing."""
    graded = [right for reference in references if (right := _is_right(answer, reference)) is not None]
    return any(graded) if graded else None


def _is_right(answer: str, reference: str) -> bool | None:
    result = reference.rpartition(_RESULT_MARK)[2]
    words, numbers = _words(result), _numbers(result)
    if not words or len(words) > _MAX_WORDS:
        return None
    if len(numbers) == 1 and _NUMBER_REFERENCE.match(result):
        return _numbers(answer)[-1:] == numbers
    return f" {' '.join(words)} " in f" {' '.join(_words(answer))} "


def _numbers(text: str) -> list[Decimal]:
    return [Decimal(number.replace(",", "")) for number in _NUMBER.findall(text)]


def _words(text: str) -> list[str]:
    """Without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How many answers are right. Errors are standard errors over questions."""

    num_questions: int
    """Questions whose reference grades answers."""
    right: float
    """Share of right answers: over turns of each question, then over questions."""
    error: float | None
    """None for a single question."""
    difference: float
    """The share less the baseline's on the same questions."""
    difference_error: float
    """As if one question more had been lost and one more won, so that few questions prove nothing (Agresti and Min,
    Statistics in Medicine 24, 2005)."""

    @property
    def is_lower(self) -> bool:
        """Whether it is below the baseline's by more than chance: two standard errors."""
        return self.difference < -2 * self.difference_error


def accuracy_of(ours: Sequence[float], baseline: Sequence[float]) -> Accuracy | None:
    """Shares of right answers by question, the baseline's to the same ones; None: there are no questions."""
    if not ours:
        return None
    differences = [own - other for own, other in zip(ours, baseline, strict=True)]
    return Accuracy(
        num_questions=len(ours),
        right=statistics.fmean(ours),
        error=_error(ours) if len(ours) > 1 else None,
        difference=statistics.fmean(differences),
        difference_error=_error([*differences, 1.0, -1.0]),
    )


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean of these values."""
    return statistics.stdev(values) / math.sqrt(len(values))
