from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.emulation.profiles import load_profile
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.fleet import Goals
from pilotfish.planning.plan import make_plan
from pilotfish.planning.planner import Fleet, Planner
from pilotfish.planning.result import Plan
from pilotfish.planning.tables import show
from pilotfish.planning.workload import poisson_workload


def planner(rate: float = 10.0, **changes: Any) -> Planner:
    return Planner(
        profile=load_profile("a100-70b"),
        drafting=DraftAssumptions(**changes),
        workload=poisson_workload(rate, parse_lengths("200"), parse_lengths("100")),
    )


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(planner(), Goals(token_s=0.02))


def test_the_table_by_acceptance_goes_from_no_drafts_to_long_ones(plan: Plan) -> None:
    alone = [(row.acceptance, row.best_k, row.speed_up) for row in plan.acceptances if row.batch == 1]
    assert [acceptance for acceptance, _, _ in alone] == [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    lengths, speed_ups = [k for _, k, _ in alone], [speed_up for *_, speed_up in alone]
    assert lengths == sorted(lengths)
    assert lengths[0] <= 2
    assert lengths[-1] == 8
    assert speed_ups == sorted(speed_ups)
    (same,) = (row for row in plan.acceptances if (row.acceptance, row.batch) == (0.8, 8))
    (by_batch,) = (row for row in plan.batches if row.batch == 8)
    assert (same.best_k, same.speed_up) == (by_batch.best_k, by_batch.speed_up)


def test_equal_gpus_are_equal(plan: Plan) -> None:
    assert len(plan.equal_gpus) == 3
    assert len({row.num_gpus for row in plan.equal_gpus}) == 1
    assert len({row.rate for row in plan.equal_gpus}) == 1
    assert plan.equal_gpus[0].num_targets * plan.fleets[0].num_drafters == (
        plan.equal_gpus[0].num_drafters * plan.fleets[0].num_targets
    )


def test_the_cheapest_fleets_meet_the_goals(plan: Plan) -> None:
    assert [row.name for row in plan.fleets] == ["drafters apart", "all targets, plain"]
    assert all(row.meets_goals for row in plan.fleets)


def test_a_drafter_that_never_hits_is_not_planned() -> None:
    plan = make_plan(planner(acceptance=(0.01,)), Goals())
    assert plan.batches[0].best_k == 0
    assert [row.num_drafters for row in plan.fleets] == [0]
    assert plan.equal_gpus == []
    assert any("never pay" in sentence for sentence in plan.verdict)


def test_goals_that_only_drafts_reach() -> None:
    plan = make_plan(planner(rate=1.0), Goals(token_s=0.006))
    assert len(plan.fleets) == 1
    assert any("Without drafters no fleet reaches 6 ms a token" in sentence for sentence in plan.verdict)


def test_a_given_fleet_is_judged_even_if_it_misses_the_goals() -> None:
    plan = make_plan(planner(), Goals(token_s=0.002), Fleet(Placement.SEPARATE, 2, 1))
    (row,) = plan.fleets
    assert (row.num_targets, row.num_drafters, row.meets_goals) == (2, 1, False)
    assert any("miss the goals" in sentence for sentence in plan.verdict)


def test_steps_of_reasoning_are_worth_what_their_parts_take() -> None:
    """a100-70b without a network: 128 draft steps of 0.5 ms, a judgement of about a step, and what fell in plain
    steps."""
    plan = make_plan(planner(acceptance=(0.01,), ahead_tokens=0), Goals())
    plain_ms = plan.batches[0].plain_token_ms
    assert [row.step_acceptance for row in plan.steps] == [0.3, 0.6, 0.9]
    for row in plan.steps:
        least_ms = 0.5 + plain_ms / 128 + (1 - row.step_acceptance) * plain_ms
        # Eight round trips and one of half a millisecond each, and the judgement's rows.
        assert least_ms < row.token_ms < least_ms + 9 * 0.5 / 128 + plain_ms / 128
        assert row.speed_up == pytest.approx(plain_ms / row.token_ms)


def test_a_better_drafter_makes_up_for_steps_that_fall(plan: Plan) -> None:
    worse = make_plan(planner(acceptance=(0.3,)), Goals())
    assert all(better.speed_up > row.speed_up for better, row in zip(plan.steps, worse.steps, strict=True))


def test_tables_fit_eighty_columns(plan: Plan) -> None:
    output = io.StringIO()
    show(plan, Console(file=output, width=80))
    text = output.getvalue()
    assert "drafters apart" in text
    assert plan.verdict[0] in text
    assert "steps of reasoning" in text
    assert "…" not in text
