"""Fleets for a workload: simulated, sized for goals, and held against others of equal cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.errors import ConfigError
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN, Drafting, Placement
from pilotfish.planning.fleet import FleetSimulation, require_room
from pilotfish.planning.goals import Goals
from pilotfish.planning.outcome import Outcome, quantile
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.steady_state import steady_state
from pilotfish.planning.workload import Workload

ROUND_TRIP_S = 0.0005
HANDLING_S = 0.0001
"""As an orchestrator takes on one core; what matters is that messages do not come all at once."""
MIN_REQUESTS = 4_000
MAX_REQUESTS = 200_000
_REQUESTS_PER_CONCURRENT = 20
"""A simulation is long against what one request takes, so that beginning and end count for little."""
WARM_UP_SHARE = 0.1
"""Of the requests that are simulated: the first ones, which are not counted."""
TARGETS_PER_DRAFTER = (1, 2, 4, 8, 16)
"""Tried when a fleet is sized."""
MAX_TARGETS = 20_000
"""More are not simulated: a mistyped rate would fill the memory."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many replicas of each kind."""

    placement: Placement
    num_targets: int
    num_drafters: int = 0

    @property
    def targets_per_drafter(self) -> float:
        """Rounded where it is above 1, so that few tables serve many fleets."""
        if not self.num_drafters:
            return 1.0
        ratio = self.num_targets / self.num_drafters
        return float(round(ratio)) if ratio >= 1 else 1 / round(1 / ratio)


@dataclass(kw_only=True)
class Planner:
    """One profile, one way to draft, one workload."""

    profile: HardwareProfile
    drafting: Drafting
    workload: Workload
    round_trip_s: float = ROUND_TRIP_S
    """Between the orchestrator and a replica, with all that is done on the way."""
    handling_s: float = HANDLING_S
    """Of one message by an orchestrator. There are enough orchestrators that one serves no more than one target."""
    num_requests: int = 0
    """Simulated for each fleet; 0: by the load, 4,000 to 200,000."""
    seed: int = 0
    stepwise: bool = True
    """Correct closed formulas by simulated rounds."""
    _rates: dict[tuple[Placement, float, bool], ReplicaRates] = field(default_factory=dict, init=False)
    _outcomes: dict[Fleet, Outcome] = field(default_factory=dict, init=False)

    def model(self, placement: Placement, targets_per_drafter: float = 1.0) -> DecodingModel:
        """Closed formulas for a replica of such a fleet."""
        return DecodingModel(
            self.profile,
            PLAIN if placement is Placement.NONE else self.drafting,
            placement=placement,
            context_tokens=self.workload.mean_prompt_tokens + self.workload.mean_output_tokens / 2,
            round_trip_s=self.round_trip_s,
            handling_s=self.handling_s,
            targets_per_drafter=targets_per_drafter,
        )

    def rates(self, placement: Placement, targets_per_drafter: float = 1.0, *, stepwise: bool = True) -> ReplicaRates:
        """Of a replica of such a fleet; made once."""
        key = placement, targets_per_drafter, stepwise and self.stepwise
        if key not in self._rates:
            self._rates[key] = ReplicaRates(self.model(placement, targets_per_drafter), stepwise=key[2])
        return self._rates[key]

    def rates_of(self, fleet: Fleet) -> ReplicaRates:
        return self.rates(fleet.placement, fleet.targets_per_drafter)

    def num_gpus(self, fleet: Fleet) -> int:
        """What a fleet costs; machines where the profile has no GPUs."""
        target, draft = self.profile.target_gpus, self.profile.draft_gpus
        if not target:
            target = draft = 1
        return fleet.num_targets * target + fleet.num_drafters * draft

    def simulate(self, fleet: Fleet) -> Outcome:
        """The workload on the fleet; simulated once. Equal requests for every fleet."""
        if fleet not in self._outcomes:
            _require_size(fleet.num_targets, self.workload.rate)
            num_requests = self.num_requests or self._enough_requests()
            simulation = FleetSimulation(
                self.rates_of(fleet),
                fleet.num_targets,
                round_trip_s=self.round_trip_s,
                seed=self.seed,
                warm_up=int(WARM_UP_SHARE * num_requests),
            )
            self._outcomes[fleet] = simulation.run_open(self.workload.requests(num_requests, self.seed))
        return self._outcomes[fleet]

    def scaled(self, factor: float) -> Planner:
        """For so many times the load. How fast a replica decodes does not depend on it."""
        result = replace(self, workload=self.workload.scaled(factor))
        result._rates = self._rates
        return result

    def smallest(self, placement: Placement, goals: Goals) -> Fleet:
        """The cheapest fleet that meets the goals. Raises ConfigError naming the limit that none gets below."""
        self._require_reachable(placement, goals)
        ratios = TARGETS_PER_DRAFTER if placement is Placement.SEPARATE else TARGETS_PER_DRAFTER[:1]
        estimates = {ratio: self._estimate(placement, ratio, goals) for ratio in ratios}
        by_cost = sorted(ratios, key=lambda ratio: (self.num_gpus(_fleet(placement, estimates[ratio], ratio)), -ratio))
        # The estimate knows nothing of sequences that get out of step.
        ratio = next(ratio for ratio in by_cost if self.rates(placement, ratio).token_s[1] <= goals.token_s)
        return self._smallest(placement, ratio, estimates[ratio], goals)

    def _smallest(self, placement: Placement, ratio: int, estimate: int, goals: Goals) -> Fleet:
        """Gallop from the estimate to where the simulation agrees, then halve."""

        def is_enough(num_targets: int) -> bool:
            return goals.are_met(self.simulate(_fleet(placement, num_targets, ratio)))

        high = estimate
        low, stride = 0, max(1, high // 16)
        while not is_enough(high):
            low, high, stride = high, high + stride, 2 * stride
        if low == 0:
            stride = max(1, high // 16)
            while high > 1:
                candidate = max(1, high - stride)
                if not is_enough(candidate):
                    low = candidate
                    break
                high, stride = candidate, 2 * stride
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        return _fleet(placement, high, ratio)

    def _estimate(self, placement: Placement, ratio: int, goals: Goals) -> int:
        """Target replicas by mean values; no more than one for each request there is at once."""
        rates = self.rates(placement, ratio, stepwise=False)
        limit = max(1, round(self.workload.rate * self.workload.mean_output_tokens * rates.token_s[1]))

        def is_enough(num_targets: int) -> bool:
            state = steady_state(rates, self.workload, self.workload.rate / num_targets)
            return state is not None and state.token_s <= goals.token_s

        high = 1
        while high < limit and not is_enough(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        _require_size(high, self.workload.rate)
        return high

    def _require_reachable(self, placement: Placement, goals: Goals) -> None:
        rates = self.rates(placement, TARGETS_PER_DRAFTER[0])
        alone_s = rates.token_s[1]
        if alone_s > goals.token_s:
            k = rates.num_draft_tokens[1]
            how = f"with {k} draft tokens a round" if k else "plainly"
            raise ConfigError(
                f"no fleet reaches {goals.token_s * 1e3:g} ms a token: a sequence that has a replica of profile "
                f"{self.profile.name} to itself takes {alone_s * 1e3:.3g} ms, decoding {how}. Ask for less, or plan "
                "with a faster target, a better drafter (--acceptance) or more drafting ahead (--ahead-tokens)"
            )
        sample = list(self.workload.requests(min(MIN_REQUESTS, self.num_requests or MIN_REQUESTS), self.seed))
        for request in sample:
            require_room(self.profile, request)
        prefills_s = [rates.prefill_s(0, request.num_prompt_tokens) + self.round_trip_s for request in sample]
        prefill_s = quantile(prefills_s, goals.share)
        if prefill_s > goals.first_token_s:
            raise ConfigError(
                f"no fleet reaches a first token within {goals.first_token_s * 1e3:g} ms for {goals.share:.0%} of the "
                f"requests: reading the prompt alone takes {prefill_s * 1e3:.0f} ms on an idle replica of profile "
                f"{self.profile.name}. Allow more (--ttft-ms), or plan shorter prompts"
            )

    def _enough_requests(self) -> int:
        """The same for every fleet, so that all get the same requests."""
        token_s = self.model(Placement.NONE).token_s(1, 0)
        concurrent = self.workload.rate * self.workload.mean_output_tokens * token_s
        return int(min(MAX_REQUESTS, max(MIN_REQUESTS, _REQUESTS_PER_CONCURRENT * concurrent)))


def _fleet(placement: Placement, num_targets: int, ratio: int) -> Fleet:
    num_drafters = math.ceil(num_targets / ratio) if placement is Placement.SEPARATE else 0
    return Fleet(placement, num_targets, num_drafters)


def _require_size(num_targets: int, rate: float) -> None:
    """Raises ConfigError for a fleet beyond MAX_TARGETS."""
    if num_targets > MAX_TARGETS:
        raise ConfigError(
            f"{rate:g} requests a second take {num_targets:,} target replicas; {MAX_TARGETS:,} are the most that is "
            "planned: check --rate, or plan a part of the load"
        )
