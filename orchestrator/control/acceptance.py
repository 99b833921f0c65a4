"""How likely drafts are to be accepted, position by position.

Pr(draft i is accepted | all before it were) is one decayed average per position, for each proposer; a request's own
average is shrunk towards it. Where a proposer often has nothing to propose, the share of empty proposals counts, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.control.round_costs import Average
from orchestrator.control.version_history import VersionHistory
from pilotfish.speculation.statistics import DecayedAcceptance

_SHARED_ROUNDS, _OWN_ROUNDS = 256.0, 64.0
"""Half-lives, in rounds, of what all requests know, and of what one knows of itself."""
_SHRINKAGE_ROUNDS = 32.0
"""What all requests know counts as much as so many rounds of one's own: requests differ less than a few rounds say. So
much is left of what was known when a drafter gets new weights, too."""
_PRIOR, _PRIOR_ROUNDS = 0.6, 2.0
"""Belief before any draft: high enough that drafts get tried."""
_NEIGHBOUR_ROUNDS = 16.0
"""A position that was rarely drafted is believed to be like the one before it."""
_PROBE_ROUNDS = 8.0
"""A probe stands for the rounds that were not drafted since the one before."""


class ProposerAcceptance:
    """What all requests know of one proposer."""

    def __init__(self) -> None:
        self._positions = DecayedAcceptance(
            half_life_rounds=_SHARED_ROUNDS,
            prior=_PRIOR,
            prior_weight=_PRIOR_ROUNDS,
            neighbour_weight=_NEIGHBOUR_ROUNDS,
        )
        self.empty_share = 0.0
        """Share of the proposer's proposals that are empty."""
        self.empty_run_tokens = 1.0
        """Tokens decoded plainly after an empty proposal, on average."""
        self._lengths: dict[int, Average] = {}
        """Tokens of a draft by those in a row that were asked for."""
        self.versions = VersionHistory()
        self.num_swaps = 0
        """Times that drafts were of other weights than those before."""

    def probabilities(self, num_positions: int) -> tuple[float, ...]:
        """Conditional acceptance by position, each shrunk towards the one before it."""
        return self._positions.probabilities(num_positions)

    def note(self, version: int, num_accepted: int, now_s: float) -> None:
        """A round verified drafts of this version of the drafter's weights. New ones were trained from those before:
        what was learnt of these is a belief in the new ones, as good as that in all requests is for one of them."""
        if self.versions.add(version, num_accepted, now_s):
            self.num_swaps += 1
            self._positions.doubt(_SHRINKAGE_ROUNDS)

    def add(self, depth: int, num_accepted: int, num_rounds: float) -> None:
        """A draft of this depth was verified, which stands for num_rounds."""
        self._positions.add(depth, num_accepted, num_rounds)

    def add_length(self, num_requested_tokens: int, num_draft_tokens: int) -> None:
        """A draft came, of so many tokens: all nodes of a tree."""
        self._lengths.setdefault(num_requested_tokens, Average()).add(num_draft_tokens, 1.0)

    def draft_length(self, k: int) -> float:
        """Tokens of a draft for which k in a row are asked, on average: like the nearest k that was asked for."""
        if not self._lengths:
            return k
        nearest = min(self._lengths, key=lambda requested: abs(requested - k))
        return self._lengths[nearest].value * k / nearest

    def add_proposal(self, num_empty_run_tokens: int, *, is_probe: bool = False) -> None:
        """num_empty_run_tokens: tokens decoded after an empty proposal; 0: the proposal was not empty."""
        share = (_PROBE_ROUNDS if is_probe else 1.0) / _OWN_ROUNDS
        self.empty_share += share * ((num_empty_run_tokens > 0) - self.empty_share)
        if num_empty_run_tokens:
            self.empty_run_tokens += (num_empty_run_tokens - self.empty_run_tokens) / _OWN_ROUNDS


class RequestAcceptance:
    """What one request knows of its own drafts."""

    def __init__(self, shared: ProposerAcceptance, *, is_lossy: bool = False) -> None:
        """is_lossy: drafts are accepted more often than all requests' are."""
        self._shared = shared
        self._is_lossy = is_lossy
        self.drafter_version = 0
        """Version of the head that drafted last; 0: the configured one, or another drafter."""
        self._positions = DecayedAcceptance(half_life_rounds=_OWN_ROUNDS, prior_weight=_SHRINKAGE_ROUNDS)
        self._num_swaps = shared.num_swaps

    def probabilities(self, shared: Sequence[float]) -> tuple[float, ...]:
        """Conditional acceptance by position. shared: that of all requests now."""
        return self._positions.probabilities(len(shared), shared)

    def note(self, version: int, num_accepted: int, now_s: float, in_target_depth: int = 0) -> None:
        """A step verified drafts of this version of the drafter's weights. in_target_depth: of a draft that the target
        made, as its runs say nothing of their rounds; 0: another drafted."""
        self.drafter_version = version
        if self._is_lossy:
            return
        self._shared.note(version, num_accepted, now_s)
        if in_target_depth:
            self._shared.add(in_target_depth, num_accepted, 1.0)

    def add(self, depth: int, num_accepted: int, *, is_probe: bool, is_shared: bool = True) -> None:
        """A draft of this depth was verified. is_shared: it says something about those of all requests."""
        num_rounds = _PROBE_ROUNDS if is_probe else 1.0
        if self._num_swaps != self._shared.num_swaps:
            self._num_swaps = self._shared.num_swaps
            self._positions.doubt(_SHRINKAGE_ROUNDS)
        self._positions.add(depth, num_accepted, num_rounds)
        if is_shared:
            self._shared.add(depth, num_accepted, num_rounds)
