from dataclasses import replace

import pytest

from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.costs import RoundCosts
from pilotfish.examine.prediction import Advice, advise, predict
from pilotfish.step_table import StepTable

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MS = 1_000_000
TOKENS = (1.0, 1.8, 2.4, 2.8, 3.0)
GOOD = Acceptance(1, 1, (0.8,), TOKENS, (0.0, 1.0, 2.0, 3.0, 4.0))


def costs(first_s: float = 0.001, *, is_remote: bool = False) -> RoundCosts:
    """Steps of up to 16 rows take 10 ms, larger ones as much as their rows."""
    steps = StepTable(ROWS, tuple(10 * MS * max(1, rows // 16) for rows in ROWS))
    loads = (1, 4, 16, 64)
    return RoundCosts(steps, loads, (first_s,) * 4, (first_s / 2,) * 4, 256, is_remote)


def test_a_round_is_a_step_and_the_drafters_time() -> None:
    speeds = {speed.num_requests: speed for speed in predict(GOOD, costs())}
    assert speeds[1].by_draft_tokens == pytest.approx([100.0, 1.8 / 0.011, 2.4 / 0.0115, 2.8 / 0.012, 3.0 / 0.0125])
    # Of lengths that differ by less than 3 % the shortest counts.
    assert (speeds[1].num_draft_tokens, speeds[1].speed_up) == (3, pytest.approx(7 / 3))


def test_where_rows_cost_as_much_as_tokens_nothing_is_drafted() -> None:
    speeds = predict(GOOD, costs())
    assert [speed.num_draft_tokens for speed in speeds] == [3, 3, 0, 0]
    assert speeds[-1].speed_up == 1.0
    assert len(speeds[-1].by_draft_tokens) == 4  # a step has no room for 64 x 5 rows


def test_rows_that_a_drafter_leaves_out_cost_nothing() -> None:
    rare = Acceptance(1, 1, (0.8,), TOKENS, (0.0, 0.2, 0.3, 0.4, 0.5))
    lookup = predict(rare, costs(0.0))
    assert lookup[2].num_draft_tokens > predict(GOOD, costs(0.0))[2].num_draft_tokens


def test_lengths_end_with_the_first_that_has_no_room() -> None:
    """Averages of replayed rounds may fall again; and a small step has room for no drafts at all."""
    uneven = Acceptance(1, 1, (0.8,), TOKENS, (0.0, 1.0, 5.0, 3.0, 3.5))
    *_, many = predict(uneven, costs())
    assert len(many.by_draft_tokens) == 2
    *_, most = predict(GOOD, replace(costs(), max_rows=32))
    assert (most.num_draft_tokens, len(most.by_draft_tokens)) == (0, 1)


def test_a_draft_service_is_asked_over_a_network() -> None:
    near, far = predict(GOOD, costs())[0], predict(GOOD, costs(is_remote=True))[0]
    assert far.by_draft_tokens[0] == near.by_draft_tokens[0]
    assert all(there < here for there, here in zip(far.by_draft_tokens[1:], near.by_draft_tokens[1:], strict=True))


def test_advice() -> None:
    fast, slow = predict(GOOD, costs()), predict(GOOD, costs(0.01))
    assert advise({"slow": slow, "fast": fast}) == Advice("fast", {1: 3, 4: 3, 16: 0, 64: 0}, 16)
    assert advise({"useless": predict(GOOD, costs(1.0))}) == Advice("", {1: 0, 4: 0, 16: 0, 64: 0}, None)
