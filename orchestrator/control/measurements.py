"""What rounds cost and yield here, as measured: the facts that the controllers decide on.

Shared by the requests of one orchestrator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from orchestrator.control.answer_share import SharedAnswerShare
from orchestrator.control.prices import Asking
from orchestrator.control.probing import FIRST_INTERVAL_TOKENS, longer_interval_tokens
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_record import ReplicaRecord
from orchestrator.control.window import ClippedAverage
from pilotfish.profiles import HardwareProfile
from pilotfish.speculation.statistics import DecayedAcceptance

_PRIOR_ACCEPTANCE = 0.6
_PRIOR_ROUNDS = 2.0
_NEIGHBOUR_ROUNDS = 16.0
"""Positions that are rarely drafted are believed to be like those before them, or bad luck would never be mended."""
_SHARED_HALF_LIFE_ROUNDS = 256.0
"""Of what all requests know together: eight times what one of them remembers."""
_MAX_VAIN_PROBE_INTERVAL_TOKENS = 128


class ProposerRecord:
    """How well one proposer guesses."""

    def __init__(self) -> None:
        self.acceptance = DecayedAcceptance(
            half_life_rounds=_SHARED_HALF_LIFE_ROUNDS,
            prior=_PRIOR_ACCEPTANCE,
            prior_weight=_PRIOR_ROUNDS,
            neighbour_weight=_NEIGHBOUR_ROUNDS,
        )
        self.answers = SharedAnswerShare()
        self.probe_interval_tokens = FIRST_INTERVAL_TOKENS
        """A request that does not speculate tries a draft after so many tokens at least: doubled by every one that
        fails, of any request."""
        self._nodes_per_level = ClippedAverage(weight=0.2)

    def asking(self, num_positions: int) -> Asking:
        """What is expected of it by all requests."""
        return Asking(self.acceptance.probabilities(num_positions), self.answers.value)

    def add_shape(self, depth: int, num_draft_tokens: int) -> None:
        """A draft whose longest path has depth tokens had num_draft_tokens in all."""
        self._nodes_per_level.add(num_draft_tokens / depth)

    def num_draft_tokens(self, depth: int) -> int:
        """Tokens of a draft of this depth, as drafts were until now: more than the depth where they are trees."""
        return round(depth * (self._nodes_per_level.value or 1.0))

    def add_failed_probe(self) -> None:
        self.probe_interval_tokens = longer_interval_tokens(self.probe_interval_tokens)

    def add_vain_probe(self) -> None:
        """The drafter had no answer, which says less of the text: it is asked again sooner."""
        self.probe_interval_tokens = longer_interval_tokens(self.probe_interval_tokens, _MAX_VAIN_PROBE_INTERVAL_TOKENS)

    def add_success(self) -> None:
        """Speculation pays for a request that is like the others: those that do not speculate need not wait long to
        find that it pays for them, too."""
        self.probe_interval_tokens = FIRST_INTERVAL_TOKENS


@dataclass(slots=True)
class ControlCounts:
    """What was decided, since the orchestrator started; read by metrics."""

    decisions: Counter[Reason] = field(default_factory=Counter)
    draft_tokens: Counter[int] = field(default_factory=Counter)
    """Rounds by the draft tokens they asked for; 0: plain runs."""
    latest_reason: Reason | None = None
    """Of the last decision of all, but for those about a first or a last token, which say nothing."""
    num_switches_on: int = 0
    """Times that a replica's sequences began to speculate after it had been off for them all; where the drafter is
    beside the target, times that a request did."""
    num_switches_off: int = 0

    def add_switch(self, is_on: bool) -> None:
        self.num_switches_on += is_on
        self.num_switches_off += not is_on


class Measurements:
    """Everything measured, for the requests of one orchestrator."""

    def __init__(self, profile: HardwareProfile | None = None) -> None:
        """profile: the costs to begin with; None: all are measured."""
        self.counts = ControlCounts()
        self._profile = profile
        self._replicas: dict[str, ReplicaRecord] = {}
        self._nowhere = ReplicaRecord(profile)
        """Stands in for all of them until one has answered."""
        self._proposers: dict[str, ProposerRecord] = defaultdict(ProposerRecord)

    def proposer(self, name: str) -> ProposerRecord:
        return self._proposers[name]

    def replica(self, replica_id: str) -> ReplicaRecord:
        """The record of a target replica, made when it is first asked for."""
        if replica_id not in self._replicas:
            self._replicas[replica_id] = ReplicaRecord(self._profile)
        return self._replicas[replica_id]

    @property
    def replicas(self) -> Mapping[str, ReplicaRecord]:
        """The records of all target replicas that answered, by their ids."""
        return self._replicas

    def retain(self, replica_ids: Collection[str]) -> None:
        """Forget the replicas that are not among these: one that is gone would pass for idle."""
        for replica_id in self._replicas.keys() - replica_ids:
            del self._replicas[replica_id]

    @property
    def idlest(self) -> ReplicaRecord:
        """The replica that a new request most likely gets."""
        return min(self._replicas.values(), key=lambda replica: replica.num_decoding, default=self._nowhere)

    @property
    def decode_s(self) -> float | None:
        """One plain decode step where it is fastest now; None as long as nothing is known."""
        return self.idlest.plain_s() or None
