"""When a plan has to be made anew."""

from __future__ import annotations

from pilotfish.engine.gathering_plan import GatheringPlan


def plan(num_awaited: int, end_ns: float = 50.0) -> GatheringPlan:
    """Made at 10 ns, of the sequences 0, 1, 2 and so on."""
    plan = GatheringPlan()
    plan.begin(10, range(num_awaited))
    plan.end_ns = end_ns
    return plan


def test_at_first_there_is_none() -> None:
    assert GatheringPlan().is_over(0)


def test_it_holds_until_its_end() -> None:
    assert not plan(1).is_over(49)
    assert plan(1).is_over(50)


def test_the_return_of_an_eighth_of_the_awaited_ends_it() -> None:
    few, many = plan(3), plan(16)
    few.note_ready(2)
    assert few.is_over(11)
    many.note_ready(2)
    assert not many.is_over(11)
    many.note_ready(3)
    assert many.is_over(11)


def test_one_that_was_not_awaited_ends_it() -> None:
    surprised = plan(16)
    surprised.note_ready(77)
    assert surprised.is_over(11)
