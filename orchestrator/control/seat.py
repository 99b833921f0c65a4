"""One request's part in the load of the replica that decodes it, and the count of what was decided for it."""

from __future__ import annotations

from collections import Counter

from orchestrator.control.decision import Decision, Observation
from orchestrator.control.measurements import Measurements
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_record import ReplicaRecord

_ROUTINE = frozenset((Reason.FIRST_TOKEN, Reason.LAST_TOKEN))


class Seat:
    """Follows the request from replica to replica. Prefills do not count: it is taken with the first output token."""

    def __init__(self, measurements: Measurements, proposer: str) -> None:
        self._measurements = measurements
        self._proposer = proposer
        self._replica: ReplicaRecord | None = None
        self._num_rows = 1.0
        self._is_speculating = False
        """Whether it asks its drafter. Where that has no answer it computes one row nevertheless."""
        self.draft_tokens: Counter[int] = Counter()
        """Rounds by the draft tokens they asked for."""

    @property
    def replica(self) -> ReplicaRecord:
        """Where it decodes; before that, where it will most likely."""
        return self._measurements.idlest if self._replica is None else self._replica

    def is_at(self, replica_id: str) -> bool:
        """Whether it is taken there."""
        return self._replica is not None and self._measurements.replicas.get(replica_id) is self._replica

    def take(self, observation: Observation) -> None:
        """Sit down where the sequence is now, and learn from what the replica there told."""
        replica = self._replica
        if observation.num_output_tokens and observation.replica_id:
            # One that was lost and is there again has another record.
            replica = self._measurements.replica(observation.replica_id)
        if replica is None:
            self.replica.see(observation.now_s)
            return
        if replica is not self._replica:
            self.leave(observation.now_s)
            self._replica = replica
            replica.join()
        replica.see(observation.now_s)
        if observation.target_load is not None:
            replica.observe(self._proposer, observation.target_load, observation.num_other_sequences, observation.now_s)
        if observation.num_draft_tokens or observation.num_decoded_tokens:
            # A proposal may have been shorter than was asked for.
            self._compute(observation.num_draft_tokens + 1)

    def note(self, decision: Decision, num_draft_tokens: int, answered_share: float = 1.0) -> None:
        """The next round does this; num_draft_tokens: to verify, which of a tree are more than its depth.

        answered_share: how likely the drafter has them.
        """
        counts = self._measurements.counts
        counts.decisions[decision.reason] += 1
        if decision.reason not in _ROUTINE:
            counts.latest_reason = decision.reason
        counts.draft_tokens[decision.num_draft_tokens] += 1
        self.draft_tokens[decision.num_draft_tokens] += 1
        self._compute(answered_share * num_draft_tokens + 1)
        if self._replica is not None and self._is_speculating != (num_draft_tokens > 0):
            self._is_speculating = not self._is_speculating
            self._replica.change_speculating(1 if self._is_speculating else -1)

    def note_draft(self, num_draft_tokens: int) -> None:
        """The round that was noted verifies so many, or decodes plainly if 0."""
        self._compute(num_draft_tokens + 1)

    def plain_run_tokens(self, observation: Observation, num_tokens: int) -> int:
        """Of a run that is decoded because drafts do not pay, or there are none: num_tokens, and more under load.

        Not of a first run: the request would not be counted among those who decode before it is over.
        """
        if observation.num_output_tokens:
            num_tokens = self.replica.plain_run_tokens(num_tokens)
        return min(num_tokens, observation.num_remaining_tokens)

    def leave(self, now_s: float) -> None:
        """Idempotent."""
        if self._replica is not None:
            self._replica.leave(self._num_rows, now_s, is_speculating=self._is_speculating)
        self._replica, self._num_rows, self._is_speculating = None, 1, False

    def _compute(self, num_rows: float) -> None:
        if self._replica is not None and num_rows != self._num_rows:
            self._replica.change_rows(self._num_rows, num_rows)
            self._num_rows = num_rows
