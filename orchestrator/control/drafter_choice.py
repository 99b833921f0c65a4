"""Which drafter an answer gets where there are several: the fastest so far for requests of its kind on its replica.

Time per token is counted in plain steps at the same load, and is forgotten with time. The discounted upper confidence
bound (Garivier and Moulines 2008, arXiv 0805.3415) tries the others, the seldomer the slower they were: they cost some
1 % of the speed, and a drafter that has become better is found.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.requests.kind import Kind

_KEPT_SHARE = 1 - 1 / 64
"""What an answer leaves of the weight of those before it."""
_DOUBT = 0.1
"""Plain steps a token by which a drafter that was tried once may be faster than it was seen."""


@dataclass(slots=True)
class _Record:
    """What a drafter's answers took."""

    num_answers: float = 0.0
    plain_s: float = 0.0
    """What plain decoding would have taken."""
    seconds: float = 0.0

    def forget(self) -> None:
        self.num_answers *= _KEPT_SHARE
        self.plain_s *= _KEPT_SHARE
        self.seconds *= _KEPT_SHARE


class DrafterChoice:
    """One per target replica: learns from answers that ended there, and chooses for those that begin."""

    def __init__(self) -> None:
        self._records: dict[Kind, dict[str, _Record]] = defaultdict(lambda: defaultdict(_Record))

    def choose(self, kind: Kind, proposers: Sequence[str]) -> str:
        """One of the proposers, which must not be empty; those not tried yet in their order."""
        if len(proposers) == 1:
            return proposers[0]
        records = self._records[kind]
        num_answers = sum(records[name].num_answers for name in proposers)
        return min(proposers, key=lambda name: _least_time(records[name], num_answers))

    def note(self, kind: Kind, proposer: str, *, plain_s: float, seconds: float) -> None:
        """An answer's tokens took so many seconds; plain decoding takes plain_s for as many beside as many others."""
        if not plain_s or not seconds:
            return
        records = self._records[kind]
        for record in records.values():
            record.forget()
        record = records[proposer]
        record.num_answers += 1
        record.plain_s += plain_s
        record.seconds += seconds


class AnswerTime:
    """Time of one answer, for the choice of the replica where it was spent, which gets it when the answer ends or
    moves."""

    def __init__(self, kind: Kind, proposer: str) -> None:
        self._kind = kind
        self._proposer = proposer
        self._choice = DrafterChoice()
        self._plain_s = self._seconds = 0.0

    def add(self, choice: DrafterChoice, *, plain_s: float, seconds: float) -> None:
        """Some of its tokens came; see DrafterChoice.note. choice: of the replica that they came from."""
        if choice is not self._choice:
            self.end()
            self._choice = choice
        self._plain_s += plain_s
        self._seconds += seconds

    def end(self) -> None:
        """No more comes of the replica. Idempotent."""
        self._choice.note(self._kind, self._proposer, plain_s=self._plain_s, seconds=self._seconds)
        self._plain_s = self._seconds = 0.0


def _least_time(record: _Record, num_answers: float) -> float:
    """Plain steps that a token may take at best, as far as is known."""
    if not record.num_answers:
        return -math.inf
    doubt = math.sqrt(math.log(max(math.e, num_answers)) / record.num_answers)
    return record.seconds / record.plain_s - _DOUBT * doubt
