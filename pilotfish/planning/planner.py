"""Fleets for a workload: simulated, and sized for goals."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.errors import ConfigError
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import PLAIN, DraftAssumptions, Placement
from pilotfish.planning.fleet import FleetOutcome, FleetSimulation, Goals, quantile, require_room
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import Workload

ROUND_TRIP_S = 0.0005
HANDLING_S = 0.0001
"""Time of a message on an orchestrator's core. There are so many orchestrators that one serves at most one target."""
MIN_REQUESTS, MAX_REQUESTS = 4_000, 200_000
"""Simulated for each fleet."""
_REQUESTS_PER_CONCURRENT = 20
"""A simulation is long against what one request takes, so that beginning and end count for little."""
WARM_UP_SHARE = 0.1
"""Share of the simulated requests that warm up: the first ones, which are not counted."""
TARGETS_PER_DRAFTER = (1, 2, 4, 8, 16)
"""Ratios that are tried when a fleet is sized."""
MAX_TARGETS = 20_000
"""The most targets that are simulated: a mistyped rate would fill the memory."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A number of replicas of each kind."""

    placement: Placement
    num_targets: int
    num_drafters: int = 0

    @property
    def targets_per_drafter(self) -> float:
        return self.num_targets / self.num_drafters if self.num_drafters else 1.0


@dataclass(kw_only=True)
class Planner:
    """One profile, one way to draft, one workload."""

    profile: HardwareProfile
    drafting: DraftAssumptions
    workload: Workload
    round_trip_s: float = ROUND_TRIP_S
    """Time between the orchestrator and a replica, there and back, with all that is done on the way."""
    _rates: dict[tuple[Placement, float], ReplicaRates] = field(default_factory=dict)
    """Rates, shared with planners for other loads: how fast a replica decodes does not depend on it."""
    _outcomes: dict[Fleet, FleetOutcome] = field(default_factory=dict, init=False)

    def rates(self, placement: Placement, targets_per_drafter: float = 1.0) -> ReplicaRates:
        """The rates of a replica of such a fleet."""
        key = placement, targets_per_drafter
        if key not in self._rates:
            drafting = PLAIN if placement is Placement.NONE else self.drafting
            self._rates[key] = ReplicaRates(self.model(drafting, placement, targets_per_drafter))
        return self._rates[key]

    def model(
        self,
        drafting: DraftAssumptions,
        placement: Placement = Placement.SEPARATE,
        targets_per_drafter: float = 1.0,
    ) -> DecodingModel:
        """What tokens take where sequences are drafted for like this."""
        return DecodingModel(
            self.profile,
            drafting,
            placement=placement,
            context_tokens=self.workload.mean_prompt_tokens + self.workload.mean_output_tokens / 2,
            round_trip_s=self.round_trip_s,
            handling_s=HANDLING_S,
            targets_per_drafter=targets_per_drafter,
        )

    def rates_of(self, fleet: Fleet) -> ReplicaRates:
        return self.rates(fleet.placement, fleet.targets_per_drafter)

    def num_gpus(self, fleet: Fleet) -> int:
        """What a fleet costs; machines where the profile has no GPUs."""
        if not self.profile.target_gpus:
            return fleet.num_targets + fleet.num_drafters
        return fleet.num_targets * self.profile.target_gpus + fleet.num_drafters * self.profile.draft_gpus

    def scaled(self, factor: float) -> Planner:
        """The planner for so many times the load."""
        return replace(self, workload=replace(self.workload, rate=factor * self.workload.rate))

    def simulate(self, fleet: Fleet) -> FleetOutcome:
        """The workload on the fleet; once. Equal requests for every fleet, and as many."""
        if fleet not in self._outcomes:
            if fleet.num_targets > MAX_TARGETS:
                raise ConfigError(
                    f"{self.workload.rate:g} requests a second take {fleet.num_targets:,} target replicas; "
                    f"{MAX_TARGETS:,} are the most that is planned: check --rate, or plan a part of the load"
                )
            alone_s = self.workload.mean_output_tokens * self.rates(Placement.NONE).token_s[1]
            concurrent = self.workload.rate * alone_s
            num_requests = int(min(MAX_REQUESTS, max(MIN_REQUESTS, _REQUESTS_PER_CONCURRENT * concurrent)))
            simulation = FleetSimulation(
                self.rates_of(fleet),
                fleet.num_targets,
                round_trip_s=self.round_trip_s,
                warm_up=int(WARM_UP_SHARE * num_requests),
            )
            self._outcomes[fleet] = simulation.run(self.workload.requests(num_requests))
        return self._outcomes[fleet]

    def smallest(self, placement: Placement, goals: Goals) -> Fleet:
        """The cheapest fleet that meets the goals. Raises ConfigError naming the limit that none gets below."""
        self._require_reachable(placement, goals)
        ratios = TARGETS_PER_DRAFTER if placement is Placement.SEPARATE else (1,)
        # A drafter that serves several targets may be too slow for the goal where one of its own is not.
        reaching = [ratio for ratio in ratios if self.rates(placement, ratio).token_s[1] <= goals.token_s]
        estimates = {ratio: self._estimate(self.rates(placement, ratio), goals) for ratio in reaching}
        ratio = min(reaching, key=lambda ratio: (self.num_gpus(_fleet(placement, estimates[ratio], ratio)), -ratio))

        def is_enough(num_targets: int) -> bool:
            return goals.are_met(self.simulate(_fleet(placement, num_targets, ratio)))

        high = estimates[ratio]
        while not is_enough(high):
            high *= 2
        return _fleet(placement, 1 + bisect_left(range(1, high), True, key=is_enough), ratio)

    def _estimate(self, rates: ReplicaRates, goals: Goals) -> int:
        """Target replicas by mean values; where prompts leave no room for that, one for each request there is."""
        alone = 1 / (self.workload.mean_output_tokens * rates.token_s[1])
        return math.ceil(self.workload.rate / (rates.capacity(self.workload, goals.token_s) or alone))

    def _require_reachable(self, placement: Placement, goals: Goals) -> None:
        rates = self.rates(placement)
        alone_s = rates.token_s[1]
        if alone_s > goals.token_s:
            k = rates.num_draft_tokens[1]
            how = f"with {k} draft tokens a round" if k else "plainly"
            raise ConfigError(
                f"no fleet reaches {goals.token_s * 1e3:g} ms a token: a sequence that has a replica of profile "
                f"{self.profile.name} to itself takes {alone_s * 1e3:.3g} ms, decoding {how}. Ask for less, or plan "
                "with a faster target, a better drafter (--acceptance) or more drafting ahead (--ahead-tokens)"
            )
        sample = list(self.workload.requests(MIN_REQUESTS))
        for request in sample:
            require_room(self.profile, request)
        prefills_s = [rates.prefill(0, request.num_prompt_tokens, 1)[0] + self.round_trip_s for request in sample]
        prefill_s = quantile(prefills_s, goals.share)
        if prefill_s > goals.first_token_s:
            raise ConfigError(
                f"no fleet reaches a first token within {goals.first_token_s * 1e3:g} ms for {goals.share:.0%} of the "
                f"requests: reading the prompt alone takes {prefill_s * 1e3:.0f} ms on an idle replica of profile "
                f"{self.profile.name}. Allow more (--ttft-ms), or plan shorter prompts"
            )


def _fleet(placement: Placement, num_targets: int, ratio: int) -> Fleet:
    num_drafters = math.ceil(num_targets / ratio) if placement is Placement.SEPARATE else 0
    return Fleet(placement, num_targets, num_drafters)
