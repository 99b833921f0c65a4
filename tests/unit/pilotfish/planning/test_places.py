"""Where drafts should run, and the README's table of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import DrafterForm, HardwareProfile, ProfiledDrafter, RooflineCost, load_profile
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.fleet import Goals
from pilotfish.planning.places import drafted, place_rows
from pilotfish.planning.plan import make_plan
from pilotfish.planning.planner import HANDLING_S, Fleet, Planner
from pilotfish.planning.result import PlaceRow
from pilotfish.planning.tables import show
from pilotfish.planning.workload import poisson_workload
from pilotfish.speculation.cost import expected_tokens_by_position

README = Path(__file__).parents[4] / "README.md"
PROFILES = ("a100-70b", "h100-70b-tp4")
WITH_HEADS = [load_profile(name) for name in PROFILES]


def planner(profile: HardwareProfile) -> Planner:
    """As `pilotfish plan` makes it without options."""
    return Planner(
        profile=profile,
        drafting=DraftAssumptions(ahead_tokens=SpeculationConfig.draft_ahead_tokens),
        workload=poisson_workload(1.0, parse_lengths("512"), parse_lengths("256")),
    )


def drafter(**changes: Any) -> ProfiledDrafter:
    values: dict[str, Any] = {
        "name": "head",
        "kind": DrafterForm.HEAD,
        "cost": RooflineCost(weights_s=0.001, token_s=0.0),
        "acceptance": (0.8,),
        "acceptance_source": "made up",
        "feature_bytes": 10_000,
    }
    return ProfiledDrafter(**(values | changes))


def of_head(profile: HardwareProfile) -> ProfiledDrafter:
    (head,) = (one for one in profile.drafters if one.kind is DrafterForm.HEAD)
    return head


def speed_ups(rows: Sequence[PlaceRow], name: str, place: str, one_way_ms: float) -> dict[int, float]:
    """By requests."""
    key = name, place, one_way_ms
    return {row.requests: row.speed_up for row in rows if (row.drafter, row.place, row.one_way_ms) == key}


@pytest.mark.parametrize("profile", WITH_HEADS, ids=PROFILES)
def test_each_distance_and_load_has_one_best_place(profile: HardwareProfile) -> None:
    rows = place_rows(planner(profile))
    cases = [(one_way_ms, requests) for one_way_ms in (0.2, 2.0, 10.0) for requests in (1, 4, 16, 64)]
    assert sorted((row.one_way_ms, row.requests) for row in rows if row.is_best) == cases
    for case in cases:
        group = [row for row in rows if (row.one_way_ms, row.requests) == case]
        assert [(row.drafter, row.place) for row in group] == [
            ("", "none"),
            ("EAGLE-3 head", "target"),
            ("EAGLE-3 head", "pool"),
            ("1B model", "pool"),
        ]
        (best,) = (row for row in group if row.is_best)
        assert best.speed_up * 1.03 >= max(row.speed_up for row in group)


@pytest.mark.parametrize("profile", WITH_HEADS, ids=PROFILES)
def test_ten_milliseconds_away_a_head_loses_to_one_in_the_target(profile: HardwareProfile) -> None:
    rows = place_rows(planner(profile))
    near, far = (speed_ups(rows, "EAGLE-3 head", place, 10.0) for place in ("target", "pool"))
    assert all(near[requests] > far[requests] for requests in near)
    assert all(row.place == "target" for row in rows if row.is_best and row.one_way_ms == 10.0)


@pytest.mark.parametrize("profile", WITH_HEADS, ids=PROFILES)
def test_a_head_in_the_pool_pays_for_the_network_and_the_features(profile: HardwareProfile) -> None:
    """Verify, K passes, the way there and back twice, and the features' two ways at 10 Gbit/s."""
    plan, head = planner(profile), of_head(profile)
    head = replace(head, drafts_ahead=False)
    target = drafted(plan, head, Placement.COLOCATED, 0.0)
    for k in (1, 4, 8):
        tokens = expected_tokens_by_position(head.acceptance, k)
        features_s = 2 * tokens * (3 * 8192 + 12) / 1.25e9
        for one_way_s in (0.0, 0.002):
            pool = drafted(plan, head, Placement.SEPARATE, one_way_s)
            paid_s = 4 * one_way_s + 2 * HANDLING_S + features_s
            assert pool.round_s(1, k) - target.round_s(1, k) == pytest.approx(paid_s)


def test_only_who_drafts_ahead_hides_the_network(make_profile: Callable[..., HardwareProfile]) -> None:
    waiting = drafter(kind=DrafterForm.MODEL, feature_bytes=0)
    plan = planner(make_profile())
    asked, ahead = (
        drafted(plan, replace(waiting, drafts_ahead=is_ahead), Placement.SEPARATE, 0.0002).round_s(1, 4)
        for is_ahead in (False, True)
    )
    assert ahead < asked


def test_what_is_as_fast_with_fewer_gpus_is_best(make_profile: Callable[..., HardwareProfile]) -> None:
    """A model that drafts ahead is faster than a head in the target, by less than 1 %."""
    drafters = (drafter(), drafter(name="model", kind=DrafterForm.MODEL, feature_bytes=0, drafts_ahead=True))
    slow = make_profile(target=RooflineCost(weights_s=1.0, token_s=0.0), drafters=drafters)
    rows = [row for row in place_rows(planner(slow)) if (row.one_way_ms, row.requests) == (0.2, 1)]
    by_place = {(row.drafter, row.place): row for row in rows}
    assert by_place["model", "pool"].speed_up > by_place["head", "target"].speed_up
    assert by_place["head", "target"].is_best


def test_drafters_that_do_not_pay_leave_none(make_profile: Callable[..., HardwareProfile]) -> None:
    slow = drafter(cost=RooflineCost(weights_s=0.02, token_s=0.0))
    rows = place_rows(planner(make_profile(drafters=(slow,))))
    assert {row.place for row in rows if row.is_best} == {"none"}
    assert {(row.best_k, row.speed_up) for row in rows} == {(0, 1.0)}


def test_loads_beyond_what_a_replica_holds_are_left_out(make_profile: Callable[..., HardwareProfile]) -> None:
    rows = place_rows(planner(make_profile(drafters=(drafter(),), max_sequences=8)))
    assert {row.requests for row in rows} == {1, 4}


@pytest.mark.parametrize(("drafters", "is_shown"), [((), False), ((drafter(name="[head]"),), True)])
def test_the_table_is_there_only_with_drafters(
    drafters: tuple[ProfiledDrafter, ...], is_shown: bool, make_profile: Callable[..., HardwareProfile]
) -> None:
    result = make_plan(planner(make_profile(drafters=drafters)), Goals(), Fleet(Placement.NONE, 1))
    output = io.StringIO()
    show(result, Console(file=output, width=80))
    assert bool(result.places) is is_shown
    for text in ("Where drafts should run", "[head]", "in the pool", "head] 0.8"):
        assert (text in output.getvalue()) is is_shown


@pytest.mark.parametrize("profile", WITH_HEADS, ids=PROFILES)
def test_heads_have_the_published_acceptance_length(profile: HardwareProfile) -> None:
    """nebius/EAGLE3-Llama-3.3-70B-Instruct, K = 7, temperature 0: 4.78 and 4.81 with two losses."""
    assert expected_tokens_by_position(of_head(profile).acceptance, 7) == pytest.approx(4.8, abs=0.05)


def test_the_readme_has_these_figures() -> None:
    rows = place_rows(planner(load_profile("h100-70b-tp4")))
    page = README.read_text(encoding="utf-8")
    head, model = (row.acceptance[0] for row in rows[1:4:2])
    assert f"acceptance {head} (head, published) and {model} (1B, assumed)" in page
    for label, name, place in (
        ("head in the target", "EAGLE-3 head", "target"),
        ("head in the pool", "EAGLE-3 head", "pool"),
        ("1B in the pool", "1B model", "pool"),
    ):
        by_distance = [speed_ups(rows, name, place, one_way_ms) for one_way_ms in (0.2, 2.0, 10.0)]
        cells = ["/".join(f"{found[requests]:.2f}" for requests in (1, 16, 64)) for found in by_distance]
        assert f"| {label} | {' | '.join(cells)} |" in page
