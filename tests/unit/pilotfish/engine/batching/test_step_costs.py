"""What steps take by their rows, sampled, learned, and with prefills in them."""

from collections.abc import Sequence

import pytest

from pilotfish.engine.batching.step_costs import ROWS, StepCosts
from pilotfish.step_table import StepTable

MS = 1e6


def roofline_ns(num_rows: float) -> float:
    return max(8.0, 0.1 * num_rows) * MS


@pytest.fixture
def costs() -> StepCosts:
    return StepCosts.sampled(lambda _sequences, rows: roofline_ns(rows) / 1e9, 512)


@pytest.mark.parametrize("num_rows", [1, 5, 12, 14, 64, 100, 300, 512, 2000])
def test_a_sampled_table_is_what_was_sampled(costs: StepCosts, num_rows: int) -> None:
    assert costs.step_ns(num_rows) == pytest.approx(roofline_ns(num_rows), rel=0.08)


def test_more_rows_never_take_less(costs: StepCosts) -> None:
    costs.add(512, 0, 8.0 * MS)  # of noise
    times = [costs.step_ns(rows) for rows in range(1, 400)]
    assert times == sorted(times)
    assert costs.step_ns(4000) >= costs.step_ns(512)


def test_cells_learn_what_their_own_steps_take(costs: StepCosts) -> None:
    taken = {2: 8.0 * MS, 4: 12.0 * MS, 64: 24.0 * MS}
    for _ in range(1000):
        for num_rows, step_ns in taken.items():
            costs.add(num_rows, 0, step_ns)
    for num_rows, step_ns in taken.items():
        assert costs.step_ns(num_rows) == pytest.approx(step_ns, rel=0.05)


def test_a_few_slow_steps_do_not_make_their_cell_dear_for_good() -> None:
    costs = StepCosts((4, 12, 16), (8 * MS, 8 * MS, 16 * MS))
    for _ in range(5):
        costs.add(12, 0, 16.0 * MS)
    for _ in range(20):
        costs.add(4, 0, 8.0 * MS)
    assert costs.step_ns(12) < 1.15 * costs.step_ns(4)


@pytest.mark.parametrize("visited", [(1, 14), range(1, 16), (1, 8, 300), (12, 14)])
def test_cells_that_were_measured_too_high_lead_none_astray(visited: Sequence[int]) -> None:
    costs = StepCosts(ROWS, [roofline_ns(rows) * (1.3 if rows >= 16 else 1) for rows in ROWS])
    for step in range(3000):
        for num_rows in visited:
            costs.add(num_rows, 0, roofline_ns(num_rows) * (1 + 0.03 * (-1) ** step))
    for num_rows in (1, 2, 12, 14, 64, 300):
        assert 0.7 < costs.step_ns(num_rows) / roofline_ns(num_rows) < 1.35
        if num_rows in visited:
            assert costs.step_ns(num_rows) == pytest.approx(roofline_ns(num_rows), rel=0.05)


@pytest.mark.parametrize("visited", [(4,), range(1, 9), (1, 2, 4, 8, 16)])
@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_a_table_that_is_wrong_is_corrected_where_no_step_goes(factor: float, visited: Sequence[int]) -> None:
    costs = StepCosts.sampled(lambda _sequences, rows: factor * roofline_ns(rows) / 1e9, 512)
    for _ in range(200):
        for num_rows in visited:
            costs.add(num_rows, 0, roofline_ns(num_rows))
    assert costs.step_ns(4) == pytest.approx(roofline_ns(4), rel=0.01)
    assert costs.step_ns(256) == pytest.approx(roofline_ns(256), rel=0.1)


def test_cells_that_join_the_table_do_not_hide_how_far_it_is_off() -> None:
    costs = StepCosts((1, 2, 3, 4), (8e6,) * 4)
    for num_rows in (16, 24, 32, 48, 64):
        costs.add(1, 0, 10e6)
        costs.add(num_rows, 0, 20e6)
    assert costs.step_ns(3) > 8.5e6
    assert costs.table.step_ns[2] == round(costs.step_ns(3))


def test_a_step_that_stalled_moves_the_other_cells_little(costs: StepCosts) -> None:
    costs.add(4, 0, 2000 * MS)
    assert costs.step_ns(64) < 1.15 * 8.0 * MS


def test_a_first_step_that_stalled_makes_its_cell_little_dearer() -> None:
    costs = StepCosts((1, 2, 3), (8 * MS, 8 * MS, 8 * MS))
    costs.add(48, 0, 2000 * MS)
    assert costs.step_ns(48) <= 2 * 8.0 * MS


def test_a_step_between_cells_corrects_the_one_below(costs: StepCosts) -> None:
    for _ in range(100):
        costs.add(300, 0, 2 * roofline_ns(256))
    assert costs.step_ns(256) > 1.5 * roofline_ns(256)


def test_without_a_table_all_is_learned() -> None:
    costs = StepCosts()
    for num_rows in (200, 1, 6, 48):
        costs.add(num_rows, 0, roofline_ns(num_rows))
    for num_rows in (1, 3, 6, 48):
        assert costs.step_ns(num_rows) == 8.0 * MS


@pytest.mark.parametrize(
    ("num_rows", "num_prefill_rows", "step_ms", "prefill_ms"),
    [
        (8, 0, 9.0, 0.0),
        (108, 100, 20.0, 12.0),  # the others take 8
        (108, 100, 7.0, 0.0),  # noise
        (100, 100, 20.0, 20.0),  # nobody decodes
    ],
)
def test_prefills_are_charged_what_the_others_do_not_cost(
    costs: StepCosts, num_rows: int, num_prefill_rows: int, step_ms: float, prefill_ms: float
) -> None:
    assert costs.add(num_rows, num_prefill_rows, step_ms * MS) == pytest.approx(prefill_ms * MS, rel=0.05)


def test_steps_with_prefills_teach_how_busy_the_machine_is_and_nothing_else(costs: StepCosts) -> None:
    before = [costs.step_ns(rows) for rows in ROWS]
    costs.add(8, 7, 500 * MS)
    once = [costs.step_ns(rows) / ns for rows, ns in zip(ROWS, before, strict=True)]
    assert once == pytest.approx([1.02] * len(ROWS)), "a stall counts as twice the time, and little"
    for _ in range(300):
        costs.add(8, 7, 16 * MS)
    assert costs.step_ns(8) == pytest.approx(16 * MS, rel=0.02), "twice as slow as at the start"


def test_the_published_table_says_what_steps_cost(costs: StepCosts) -> None:
    assert StepCosts().table == StepTable()
    for num_rows in (1, 12, 100, 2000):
        assert costs.table.step_s(num_rows) == pytest.approx(costs.step_ns(num_rows) / 1e9)


def test_a_table_is_published_anew_when_a_cell_has_moved_by_three_percent(costs: StepCosts) -> None:
    first = costs.table
    costs.add(4, 0, 9.6 * MS)  # by a tenth of a fifth, and a little more
    assert costs.table is first
    costs.add(4, 0, 9.6 * MS)
    assert costs.table != first
    assert costs.table.step_s(4) == pytest.approx(costs.step_ns(4) / 1e9)


def test_steps_that_take_no_time_are_no_fault() -> None:
    costs = StepCosts.sampled(lambda _sequences, _rows: 0.0, 64)
    assert costs.add(3, 0, 0) == costs.add(5, 3, 0) == 0
    assert costs.step_ns(40) == 0
