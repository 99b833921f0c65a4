from __future__ import annotations

import pytest

from pilotfish.planning.result import FleetRow, judge


def row(name: str, token_ms: float, capacity: float, *, meets: bool = True, drafters: int = 0) -> FleetRow:
    return FleetRow(
        name=name,
        num_targets=8,
        num_drafters=drafters,
        num_gpus=72,
        rate=10.0,
        capacity=capacity,
        first_token_ms={"p50": 1.0},
        token_ms={"p50": token_ms},
        mean_batch=1.0,
        k_at_mean_batch=0,
        meets_goals=meets,
    )


@pytest.mark.parametrize(
    ("ours", "plain", "conclusion"),
    [
        ((5.0, 20.0), (8.0, 18.0), "earn their GPUs"),
        ((8.0, 18.0), (7.0, 20.0), "better as targets"),
        ((5.0, 15.0), (8.0, 20.0), "disagree"),
        ((8.0, 20.0), (8.0, 20.0), "better as targets"),
    ],
)
def test_the_drafters_gpus(ours: tuple[float, float], plain: tuple[float, float], conclusion: str) -> None:
    rows = [row("drafters apart", *ours, drafters=8), row("all targets, plain", *plain)]
    assert conclusion in judge([], None, [], rows, "GPUs")[-1]
