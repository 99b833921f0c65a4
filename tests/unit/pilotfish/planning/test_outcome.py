from __future__ import annotations

import pytest

from pilotfish.planning.outcome import Outcome, quantile
from pilotfish.planning.running import Running
from pilotfish.planning.workload import Request


def test_quantiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert quantile(values, 0.5) == 50
    assert quantile(values, 0.95) == 95
    assert quantile(values, 0.99) == 99
    assert quantile([3.0], 0.99) == 3
    assert quantile([], 0.5) == 0


def test_times_of_a_request() -> None:
    running = Running(Request(1.0, 100, 11), 1.0)
    running.start_s, running.first_token_s, running.join_s = 1.5, 2.0, 0.25
    outcome = Outcome(num_targets=1)
    outcome.add(running, 7.0, 0.125)
    assert (outcome.queue_s[0], outcome.first_token_s[0], outcome.token_s[0]) == (0.5, 1.375, 0.5)
    assert outcome.total_s[0] == 6.375
    assert outcome.tokens_per_s == pytest.approx(11 / 6)


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    outcome = Outcome(num_targets=1)
    outcome.add(Running(Request(0.0, 10, 1), 0.0), 1.0, 0.0)
    assert len(outcome.token_s) == 0
    assert outcome.num_finished == 1
