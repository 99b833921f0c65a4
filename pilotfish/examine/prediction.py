"""What a drafter makes of a target's speed, before anybody has run it: rounds by their measured parts. Pure.

In the target rounds are played in virtual time, with as many of K drafts as the target would find worth their rows.
From a draft service a round is what `pilotfish plan` computes, with the way there and back. A head may be in either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import msgspec

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.emulation.profiles.step_cost import MeasuredCost
from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.costs import DrafterPlace, MeasuredRoundCosts
from pilotfish.examine.drafted_answer import DraftedAnswer
from pilotfish.examine.virtual_target import Way, play
from pilotfish.planning.decoding import TOLERANCE, DecodingModel
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.planner import HANDLING_S


class Speed(msgspec.Struct, frozen=True):
    """Speed with one drafter at one load, with the best draft length; K = 0 decodes plainly."""

    num_requests: int
    num_draft_tokens: int
    tokens_per_round: float
    tokens_per_s: float
    """Tokens a second of all requests together."""
    speed_up: float
    """Tokens a second over those of plain decoding."""
    by_draft_tokens: tuple[float, ...]
    """Tokens a second for each K from 0 on, in chains; as far as a step has room for its rows."""
    by_depth_of_trees: tuple[float, ...] = ()
    """Tokens a second for each depth of trees; empty: the drafter makes none."""
    is_tree: bool = False
    """Whether the best one is a tree."""
    tokens_by_draft_tokens: tuple[float, ...] = ()
    """Tokens a round for each K, in chains."""
    tokens_by_depth_of_trees: tuple[float, ...] = ()
    """Tokens a round for each depth of trees."""
    by_remote_draft_tokens: tuple[float, ...] = ()
    """Tokens a second for each K, if the head were in a draft service; the best K is not chosen among them."""


@dataclass(frozen=True, kw_only=True)
class _Replayed(DraftAssumptions):
    """Rounds that were replayed, in place of rates."""

    tokens_per_round: Sequence[float]

    def expected_tokens(self, num_draft_tokens: int, num_outcomes: int = 0) -> float:
        del num_outcomes
        return self.tokens_per_round[num_draft_tokens]


class _Rates(NamedTuple):
    """Rates by draft length, from 0 on."""

    tokens_per_s: Sequence[float] = ()
    tokens_per_round: Sequence[float] = ()

    @property
    def best(self) -> int:
        """The best draft length, as a plan has it: the shortest of those that differ by less than noise."""
        least = max(self.tokens_per_s) / (1 + TOLERANCE)
        return next(k for k, rate in enumerate(self.tokens_per_s) if rate >= least)


def predict(acceptance: Acceptance, costs: MeasuredRoundCosts, answers: Sequence[DraftedAnswer] = ()) -> list[Speed]:
    """A row for each load that was measured. answers: those of the acceptance, of a drafter in the target."""
    if costs.place is DrafterPlace.DRAFT_SERVICE:
        return [_speed(load, _remote_rates(acceptance, costs, load)) for load in costs.loads]
    speeds = [_played_speed(acceptance, costs, answers, load) for load in costs.loads]
    if costs.place is DrafterPlace.TARGET:
        return speeds
    remote = (tuple(_remote_rates(acceptance, costs, load).tokens_per_s) for load in costs.loads)
    return [
        msgspec.structs.replace(speed, by_remote_draft_tokens=rates)
        for speed, rates in zip(speeds, remote, strict=True)
    ]


def _remote_rates(acceptance: Acceptance, costs: MeasuredRoundCosts, load: int) -> _Rates:
    tokens = acceptance.tokens_per_round
    lengths = _lengths(acceptance, costs, load)
    rates = [load * tokens[k] / _remote_round_s(acceptance, costs, load, k) for k in lengths]
    return _Rates(rates, tokens[: len(rates)])


def _played_speed(
    acceptance: Acceptance, costs: MeasuredRoundCosts, answers: Sequence[DraftedAnswer], load: int
) -> Speed:
    lengths = _lengths(acceptance, costs, load)[1:]

    def rates(num_nodes: int) -> _Rates:
        played = (play(answers, costs, load, Way(k, num_nodes)) for k in lengths)
        runs = list(takewhile(lambda run: run.num_rounds, played))  # no answer is long enough for longer ones
        plain = load / costs.step_s(load, load)
        return _Rates([plain, *(run.tokens_per_s for run in runs)], [1.0, *(run.tokens_per_round for run in runs)])

    has_trees = any(draft.tree is not None for answer in answers for draft in answer.drafts.values())
    return _speed(load, rates(0), rates(costs.max_nodes) if has_trees else _Rates())


def _speed(load: int, chains: _Rates, trees: _Rates = _Rates()) -> Speed:
    is_tree = bool(trees.tokens_per_s) and trees.tokens_per_s[trees.best] > chains.tokens_per_s[chains.best]
    chosen = trees if is_tree else chains
    return Speed(
        num_requests=load,
        num_draft_tokens=chosen.best,
        tokens_per_round=chosen.tokens_per_round[chosen.best],
        tokens_per_s=chosen.tokens_per_s[chosen.best],
        speed_up=chosen.tokens_per_s[chosen.best] / chains.tokens_per_s[0],
        by_draft_tokens=tuple(chains.tokens_per_s),
        by_depth_of_trees=tuple(trees.tokens_per_s),
        is_tree=is_tree,
        tokens_by_draft_tokens=tuple(chains.tokens_per_round),
        tokens_by_depth_of_trees=tuple(trees.tokens_per_round),
    )


def _lengths(acceptance: Acceptance, costs: MeasuredRoundCosts, load: int) -> list[int]:
    """Draft lengths that a step has room for, from 0 on."""
    drafted = acceptance.drafts_per_round[1:]
    return [0, *takewhile(lambda k: load * (drafted[k - 1] + 1) <= costs.max_rows, range(1, len(drafted) + 1))]


def _remote_round_s(acceptance: Acceptance, costs: MeasuredRoundCosts, load: int, num_draft_tokens: int) -> float:
    """Where processors are shared, drafts, verification and messages follow each other; else they overlap."""
    round_s = _remote(acceptance, costs, num_draft_tokens).round_s(load, num_draft_tokens)
    if costs.shares_processors and num_draft_tokens:
        round_s += 2 * (costs.round_trip_s + load * HANDLING_S)
    return round_s


def _remote(acceptance: Acceptance, costs: MeasuredRoundCosts, num_draft_tokens: int) -> DecodingModel:
    """Rounds of so many drafts, whose passes take the same time each: the first one may be longer than the others."""
    num_passes = max(1, num_draft_tokens)
    passes_s = tuple(costs.passes_s(load, [load] * (num_passes - 1)) / num_passes for load in costs.loads)
    table = costs.verification or MeasuredCost(
        num_sequences=(1,),
        num_tokens=costs.steps.rows,
        step_times_s=(tuple(ns / 1e9 for ns in costs.steps.step_ns),),
    )
    drafts = MeasuredCost(num_sequences=(1,), num_tokens=costs.loads, step_times_s=(passes_s,))
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
    placement = Placement.COLOCATED if costs.shares_processors else Placement.SEPARATE
    return DecodingModel(profile, drafting, placement=placement, round_trip_s=costs.round_trip_s, handling_s=HANDLING_S)


class Advice(msgspec.Struct, frozen=True):
    """What to configure."""

    drafter: str
    """Empty: none pays at any load."""
    num_draft_tokens: Mapping[int, int]
    """K by load."""
    off_from: int | None
    """The first of the loads from which on nothing is drafted; None: at all of them something is."""
    takes_chains: bool = False
    """Whether the drafter could make trees, and is faster without them at every load."""


def advise(speeds: Mapping[str, Sequence[Speed]]) -> Advice:
    """The drafter that is fastest over the loads that all bear, each counting the same. Among equals the first."""
    if not speeds:
        return Advice("", {}, None)
    # The engine of a draft model may take fewer sequences than a target.
    num_common = min(map(len, speeds.values()))
    best = max(speeds, key=lambda name: sum(speed.speed_up for speed in speeds[name][:num_common]))
    lengths = {speed.num_requests: speed.num_draft_tokens for speed in speeds[best]}
    if not any(lengths.values()):
        return Advice("", lengths, None)
    last = max(load for load, k in lengths.items() if k)
    takes_chains = any(each.by_depth_of_trees for each in speeds[best]) and not any(
        each.is_tree for each in speeds[best]
    )
    return Advice(best, lengths, next((load for load in lengths if load > last), None), takes_chains)
