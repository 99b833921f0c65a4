"""Waiting ends with a disappointment, and begins again with answers that come in time."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.patience import Patience


def asked(patience: Patience, num_steps: int, *, is_in_time: bool) -> list[str]:
    """What so many steps do of a service whose answers come in time, or do not."""
    steps = []
    for _ in range(num_steps):
        asking = patience.next()
        steps.append(asking)
        if asking == "wait":
            patience.add_wait(is_in_time=is_in_time)
        elif asking == "probe":
            patience.add_probe(is_in_time=is_in_time)
    return steps


def test_it_waits_until_it_is_disappointed_once() -> None:
    assert asked(Patience(), 3, is_in_time=True) == ["wait"] * 3
    assert asked(Patience(), 4, is_in_time=False) == ["wait", "probe", "none", "probe"]


def test_one_late_answer_costs_one_probe() -> None:
    patience = Patience()
    asked(patience, 1, is_in_time=False)
    assert asked(patience, 3, is_in_time=True) == ["probe", "wait", "wait"]


def test_a_service_that_is_gone_is_probed_ever_more_rarely_and_never_waited_for() -> None:
    patience = Patience()
    steps = asked(patience, 1000, is_in_time=False)
    assert steps.count("wait") == 1
    assert 10 < steps.count("probe") < 25
    assert "probe" in steps[-70:]


def test_one_that_is_back_is_waited_for_within_some_steps() -> None:
    patience = Patience()
    asked(patience, 1000, is_in_time=False)
    assert asked(patience, 70, is_in_time=True)[-1] == "wait"


@pytest.mark.parametrize("num_steps", [200, 2000])
def test_one_that_disappoints_whoever_waits_is_trusted_ever_less(num_steps: int) -> None:
    patience = Patience()
    num_waits = 0
    for _ in range(num_steps):
        asking = patience.next()
        num_waits += asking == "wait"
        if asking == "wait":
            patience.add_wait(is_in_time=False)
        elif asking == "probe":
            patience.add_probe(is_in_time=True)
    assert num_waits < 8 + num_steps / 64


def test_after_a_relapse_one_answer_in_time_is_not_enough() -> None:
    patience = Patience()
    asked(patience, 1, is_in_time=False)
    asked(patience, 2, is_in_time=True)
    asked(patience, 1, is_in_time=False)
    steps = asked(patience, 6, is_in_time=True)
    assert steps == ["none", "probe", "probe", "wait", "wait", "wait"]


def test_long_trust_makes_the_next_disappointment_the_first_one() -> None:
    patience = Patience()
    asked(patience, 20, is_in_time=False)
    asked(patience, 400, is_in_time=True)
    assert asked(patience, 1, is_in_time=False) == ["wait"]
    assert asked(patience, 2, is_in_time=True) == ["probe", "wait"]
