"""What the rounds of one traced request did and when: a few numbers each, until the request has ended."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.control.decision import Decision
from orchestrator.rounds.draft import Draft
from pilotfish.messages import Verdict


@dataclass(slots=True)
class RoundRecord:
    """One round, or one run of decoding. Times on time.monotonic_ns()'s clock."""

    number: int
    """The round's number in the request, from 0 on."""
    start_ns: int
    decision: Decision
    end_ns: int = 0
    """When its last verdict was taken."""
    is_verification: bool = False
    """Whether the round verified a draft; else it was a run, whose steps may have drafted for themselves."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_tokens: int = 0
    """Committed tokens."""
    drafter_version: int = 0
    """Version of the head that drafted last; 0: the configured one, or another drafter."""
    propose_ns: int = 0
    """Time that the round waited for its draft."""
    drafter_ns: int = 0
    """Part of propose_ns that the drafter reports as compute; 0: none reported."""
    target_ns: int = 0
    """Time in the target: waiting for a step there, and steps."""


class RoundLog:
    """Keeps at most so many rounds, spread evenly over the request: when it is full, it forgets every second one and
    keeps half as many from then on."""

    def __init__(self, max_records: int = 0) -> None:
        """max_records: the most rounds that are kept; 0: none."""
        self._max_records = max_records
        self._records: list[RoundRecord] = []
        self._current: RoundRecord | None = None
        self._num_rounds = 0
        self._stride = 1

    def begin(self, decision: Decision, now_s: float) -> None:
        """A round begins that does this."""
        if not self._max_records:
            return
        number, self._num_rounds = self._num_rounds, self._num_rounds + 1
        self._current = None
        if number % self._stride:
            return
        if len(self._records) == self._max_records:
            del self._records[1::2]
            self._stride *= 2
            if number % self._stride:
                return
        self._current = RoundRecord(number, round(1e9 * now_s), decision)
        self._records.append(self._current)

    def add(self, draft: Draft, verdict: Verdict, now_s: float) -> None:
        """A verdict of the round came; draft: what the round asked for."""
        record = self._current
        if record is None:
            return
        record.end_ns = round(1e9 * now_s)
        record.num_draft_tokens += verdict.num_draft_tokens
        record.num_accepted_tokens += verdict.num_accepted_tokens
        record.num_tokens += len(verdict.token_ids)
        record.drafter_version = verdict.drafter_version or draft.drafter_version or record.drafter_version
        record.propose_ns = round(draft.elapsed_s * 1e9)
        record.drafter_ns = round(draft.compute_s * 1e9)
        record.is_verification = bool(draft.token_ids) and verdict.num_draft_tokens > 0
        if record.is_verification:
            record.target_ns = verdict.timings.queue_time_ns + verdict.timings.compute_time_ns
        else:
            record.target_ns += verdict.timings.compute_time_ns

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """What was kept, oldest first."""
        return tuple(record for record in self._records if record.end_ns)
