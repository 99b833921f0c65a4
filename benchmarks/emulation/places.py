"""Where drafts should run, in virtual time (part e): heads in the target and in the pool, a draft model in the pool.

The orchestrator's machine over emulated engines (tests/support/simulated_stack): the real scheduler, drafting ahead and
batching, without this machine's speed, so the same on every machine. Each arm beside `pilotfish plan`.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import shared.checkout  # noqa: F401  # finds tests.support
from shared.report import Report

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import HardwareProfile, load_profile
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.places import drafted
from pilotfish.planning.planner import HANDLING_S, Planner
from pilotfish.planning.workload import poisson_workload
from tests.support.simulated_stack.placed_stack import PlacedStack, Way
from tests.support.simulated_stack.steady_state import steady_tokens_per_s

PROFILES = ("h100-70b-tp4", "a100-70b")
ONE_WAYS_S = (0.0002, 0.002)
LOADS = (1, 4, 16, 64)
ANSWER_TOKENS = 2000
"""The most tokens of an answer; of many together, each has fewer."""
TEXTS = {1: 6, 4: 2}
"""Runs with other texts, by load: one text's luck counts for less."""
HEAD, MODEL = "EAGLE-3 head", "1B model"
ASKED, PUBLISHED_K, PUBLISHED_RATE = 0.95, 5, 0.8
AHEAD_ASKED = {0.0: 3.3, 0.002: 2.9}
"""Speed-up of a draft model that drafts ahead, by the delay added each way to the draft service."""
COLUMNS = {
    "profile": "profile",
    "one_way_ms": "ms each way",
    "requests": "requests",
    "drafter": "drafter",
    "place": "place",
    "drafting": "drafting",
    "K": "K",
    "speed_up": "speed-up",
    "plan": "plan",
}


@dataclass(frozen=True)
class Arm:
    """A drafter in its place."""

    drafter: str
    place: str
    drafting: str = "on request"


ARMS = (Arm(HEAD, "target"), Arm(HEAD, "pool"), Arm(HEAD, "pool", "ahead"), Arm(MODEL, "pool", "ahead"))


def run_places(report: Report, *, quick: bool) -> None:
    """A row for each profile, distance, load and arm; what is asked for as checks."""
    report.columns = COLUMNS
    report.conditions |= {"time": "virtual", "orchestrator": f"{1e3 * HANDLING_S:g} ms a message"}
    speed_ups: dict[tuple[str, float, int, Arm], float] = {}
    loads = LOADS[:2] if quick else LOADS
    cases = [
        (name, one_way_s, load, arm) for name in PROFILES for one_way_s in ONE_WAYS_S for load in loads for arm in ARMS
    ]
    keys = [(name, load) for name in PROFILES for load in loads]
    with ProcessPoolExecutor() as processes:
        plain = dict(zip(keys, processes.map(_plain, keys), strict=True))
        for case, (num_drafts, rate, plan) in zip(cases, processes.map(_measure, cases), strict=True):
            name, one_way_s, load, arm = case
            speed_ups[case] = rate / plain[name, load]
            report.row(
                part="places",
                profile=name,
                one_way_ms=1e3 * one_way_s,
                requests=load,
                drafter=arm.drafter,
                place=arm.place,
                drafting=arm.drafting,
                K=num_drafts,
                speed_up=speed_ups[case],
                plan=plan,
            )
        added = dict(zip(AHEAD_ASKED, processes.map(_published, AHEAD_ASKED), strict=True))
    for name in PROFILES:
        far = {arm: speed_ups[name, 0.002, 1, arm] for arm in ARMS}
        ratio = far[Arm(HEAD, "pool", "ahead")] / far[Arm(HEAD, "target")]
        report.check(
            f"{name}: head in the pool, ahead, over head in the target, 1 request, 2 ms", ratio, ASKED, kind="at least"
        )
    for added_s, asked in AHEAD_ASKED.items():
        name = f"a100-70b, acceptance {PUBLISHED_RATE}, K = {PUBLISHED_K}: ahead, {1e3 * added_s:g} ms added each way"
        report.check(name, added[added_s], asked, kind="at least")
    worst = max(abs(row["speed_up"] / row["plan"] - 1) for row in report.rows if row["requests"] == 1)
    report.check("one request: largest difference from pilotfish plan", worst, 0.07, "of the plan")


def planner(profile: HardwareProfile) -> Planner:
    """As `pilotfish plan` makes it without options."""
    return Planner(
        profile=profile,
        drafting=DraftAssumptions(ahead_tokens=SpeculationConfig.draft_ahead_tokens),
        workload=poisson_workload(1.0, parse_lengths("512"), parse_lengths("256")),
    )


def _plain(key: tuple[str, int]) -> float:
    name, load = key
    return tokens_per_s(load_profile(name), Way(handling_s=HANDLING_S), 0, load)


def _measure(case: tuple[str, float, int, Arm]) -> tuple[int, float, float]:
    """K, tokens a second, and the plan's speed-up with this K: the plan's best, or 3 where it advises none."""
    name, one_way_s, load, arm = case
    profile = load_profile(name)
    drafter = replace(profile.drafter(arm.drafter), drafts_ahead=arm.drafting == "ahead")
    placement = Placement.COLOCATED if arm.place == "target" else Placement.SEPARATE
    model = drafted(planner(profile), drafter, placement, one_way_s)
    num_drafts = model.best_k(load) or 3
    way = Way(
        drafter=drafter,
        in_target=arm.place == "target",
        draft_ahead="auto" if drafter.drafts_ahead else "off",
        target_one_way_s=one_way_s,
        draft_one_way_s=one_way_s,
        handling_s=HANDLING_S,
    )
    return num_drafts, tokens_per_s(profile, way, num_drafts, load), model.speed_up(load, num_drafts)


def _published(added_s: float) -> float:
    """Speed-up of the profile's draft model with drafting ahead, beside the target and farther away."""
    profile, near = load_profile("a100-70b"), Way(acceptance=PUBLISHED_RATE, handling_s=HANDLING_S)
    ahead = replace(near, draft_ahead="on", draft_one_way_s=near.draft_one_way_s + added_s)
    return tokens_per_s(profile, ahead, PUBLISHED_K, 1) / tokens_per_s(profile, near, 0, 1)


def tokens_per_s(profile: HardwareProfile, way: Way, num_drafts: int, load: int) -> float:
    """Tokens a second in virtual time, over TEXTS; 0 drafts: plainly."""
    mode, num_tokens = ("on" if num_drafts else "off"), max(200, min(ANSWER_TOKENS, 8000 // load))
    return statistics.mean(
        steady_tokens_per_s(PlacedStack(profile, way), mode, num_drafts, load, num_tokens, first_number=1000 * text)  # type: ignore[arg-type]
        for text in range(TEXTS.get(load, 1))
    )
