"""What a drafter makes of a target's speed, before anybody has run it: rounds by their measured parts. Pure.

In the target a round of B requests and K drafts is a step of B x (K + 1) rows (fewer where the drafter has no idea) and
the drafter's time. From a draft service it is what `pilotfish plan` computes, with the way there and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.emulation.profiles.step_cost import MeasuredCost
from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.costs import RoundCosts
from pilotfish.planning.decoding import TOLERANCE, DecodingModel
from pilotfish.planning.draft_assumptions import DraftAssumptions
from pilotfish.planning.planner import HANDLING_S, ROUND_TRIP_S


class Speed(msgspec.Struct, frozen=True):
    """Of one drafter at one load, with the best draft length; K = 0 decodes plainly."""

    num_requests: int
    num_draft_tokens: int
    tokens_per_round: float
    tokens_per_s: float
    """Of all requests together."""
    speed_up: float
    """Over plain decoding."""
    by_draft_tokens: tuple[float, ...]
    """Tokens a second for each K from 0 on; as far as a step has room for its rows."""


@dataclass(frozen=True, kw_only=True)
class _Replayed(DraftAssumptions):
    """Rounds that were replayed, in place of rates."""

    tokens_per_round: Sequence[float]

    def expected_tokens(self, num_draft_tokens: int, num_outcomes: int = 0) -> float:
        del num_outcomes
        return self.tokens_per_round[num_draft_tokens]


def predict(acceptance: Acceptance, costs: RoundCosts) -> list[Speed]:
    """A row for each load that was measured."""
    return [_speed(acceptance, costs, load) for load in costs.loads]


def _speed(acceptance: Acceptance, costs: RoundCosts, load: int) -> Speed:
    drafted = acceptance.drafts_per_round[1:]
    lengths = [0, *takewhile(lambda k: load * (drafted[k - 1] + 1) <= costs.max_rows, range(1, len(drafted) + 1))]
    rates = [load * acceptance.tokens_per_round[k] / round_s(acceptance, costs, load, k) for k in lengths]
    # As a plan does: among lengths that differ by less than noise, the shortest.
    best = next(k for k in lengths if rates[k] >= max(rates) / (1 + TOLERANCE))
    return Speed(
        num_requests=load,
        num_draft_tokens=best,
        tokens_per_round=acceptance.tokens_per_round[best],
        tokens_per_s=rates[best],
        speed_up=rates[best] / rates[0],
        by_draft_tokens=tuple(rates),
    )


def round_s(acceptance: Acceptance, costs: RoundCosts, load: int, num_draft_tokens: int) -> float:
    """Seconds of a round of so many requests; without drafts those of a plain step."""
    if costs.is_remote:
        return _remote(acceptance, costs).round_s(load, num_draft_tokens)
    num_rows = load * (acceptance.drafts_per_round[num_draft_tokens] + 1)
    return costs.steps.step_s(num_rows) + costs.draft_s(load, num_draft_tokens)


def _remote(acceptance: Acceptance, costs: RoundCosts) -> DecodingModel:
    table = MeasuredCost(
        num_sequences=(1,),
        num_tokens=costs.steps.rows,
        step_times_s=(tuple(ns / 1e9 for ns in costs.steps.step_ns),),
    )
    drafts = MeasuredCost(num_sequences=(1,), num_tokens=costs.loads, step_times_s=(costs.further_s,))
    profile = HardwareProfile(
        name="measured",
        description="",
        target=table,
        draft=drafts,
        kv_cache_tokens=1,
        draft_kv_cache_tokens=1,
        max_sequences=costs.loads[-1],
        max_batch_tokens=costs.max_rows,
        max_context_tokens=1,
    )
    most = len(acceptance.tokens_per_round) - 1
    drafting = _Replayed(max_draft_tokens=most, tokens_per_round=acceptance.tokens_per_round)
    return DecodingModel(profile, drafting, round_trip_s=ROUND_TRIP_S, handling_s=HANDLING_S)


class Advice(msgspec.Struct, frozen=True):
    """What to configure."""

    drafter: str
    """Empty: none pays at any load."""
    num_draft_tokens: Mapping[int, int]
    """K by load."""
    off_from: int | None
    """The first of the loads from which on nothing is drafted; None: at all of them something is."""


def advise(speeds: Mapping[str, Sequence[Speed]]) -> Advice:
    """The drafter that is fastest over the loads, each counting the same. Among equals the first."""
    if not speeds:
        return Advice("", {}, None)
    best = max(speeds, key=lambda name: sum(speed.speed_up for speed in speeds[name]))
    lengths = {speed.num_requests: speed.num_draft_tokens for speed in speeds[best]}
    if not any(lengths.values()):
        return Advice("", lengths, None)
    last = max(load for load, k in lengths.items() if k)
    return Advice(best, lengths, next((load for load in lengths if load > last), None))
